"""The servers that the other tests rely on."""

import pymysql
import pytest
from pymilvus import MilvusClient
from sqlalchemy import make_url


@pytest.mark.mariadb
def test_each_mariadb_database_is_new_and_has_the_defaults_of_an_untouched_server(mariadb_database: str) -> None:
    url = make_url(mariadb_database)
    connection = pymysql.connect(host=url.host, port=url.port or 0, user=url.username, database=url.database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == ()
        cursor.execute("SELECT @@character_set_database, @@collation_database")
        assert cursor.fetchone() == ("latin1", "latin1_swedish_ci")


@pytest.mark.milvus_server
def test_the_milvus_server_stores_and_finds_a_vector(milvus_server_uri: str) -> None:
    client = MilvusClient(uri=milvus_server_uri, timeout=30)
    client.create_collection("server_check", dimension=2, metric_type="L2", consistency_level="Session")
    client.insert("server_check", [{"id": 1, "vector": [1.0, 0.0]}])
    [[hit]] = client.search("server_check", [[1.0, 0.0]], limit=1)
    assert (hit["id"], hit["distance"]) == (1, 0.0)
    client.drop_collection("server_check")
    client.close()
