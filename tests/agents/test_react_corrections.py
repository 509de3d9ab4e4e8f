"""What the executor tells a model whose output can't be followed, and how such runs end."""

import pytest
from llama_index.core.agent.react.formatter import ReActChatFormatter

from knowledge_lookup.agents.prompts import executor_prompt
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.scripted_agent import ANSWER, ANSWERED, CALL, NO_ANSWER, QUESTION, SOURCE, Agent
from tests.servers.openai_stub import OpenAIStub

ACTION = "Thought: look it up\nAction: lookup_knowledge\n"


@pytest.fixture
def agent(bundle: KnowledgePipeline, openai_endpoint: OpenAIStub) -> Agent:
    return Agent(bundle, openai_endpoint)


SEARCH_FORM = (
    f'检索时这样输出：\nThought: 需要检索知识库。\nAction: lookup_knowledge\nAction Input: {{"query": "{QUESTION}"}}'
)
ANSWER_FORM = "作答时这样输出：\nThought: 依据上文哪些结果\nAnswer: 写给用户的答案正文"
EITHER_FORM = f"{SEARCH_FORM}\n{ANSWER_FORM}"
EMPTY = f"上一条输出是空的。\n{EITHER_FORM}"
NO_STEP = f"上一条输出既没有调用工具，也没有给出 Answer。\n{EITHER_FORM}"
COPIED = f"上一条输出照抄了格式里的说明或示例，没有实际内容。\n{EITHER_FORM}"
INCOMPLETE = f"Action Input 缺少参数 query。\n{SEARCH_FORM}"


def unknown(name: str) -> str:
    return f"没有名为“{name}”的工具，可用的工具：lookup_knowledge。\n{SEARCH_FORM}"


CORRECTED = {
    "empty": ("", EMPTY),
    "blank": (" \n\n", EMPTY),
    "an empty fence": ("```\n```", EMPTY),
    "reasoning alone": ("<think>I must search.</think>\n", EMPTY),
    "reasoning that never ends": ("<think>I must search. I must", EMPTY),
    "a thought alone": ("Thought: 需要检索知识库", NO_STEP),
    "an empty answer": ("Thought: 已有结果\nAnswer:", NO_STEP),
    "no action at all": ("Thought: 已有结果\nAction: None\nAction Input: None", NO_STEP),
    "a made-up observation": ('Thought: 查\nObservation: {"found": true}', NO_STEP),
    "the prompt's words": ("Thought: 说明依据哪些结果作答\nAnswer: 完整的答案", COPIED),
    "the prompt's whole line": ("Answer: 完整的答案，末尾另起一行写“来源：”和所用结果的 source", COPIED),
    "the prompt's words with a source": (f"Thought: x\nAnswer: 完整的答案\n来源：{SOURCE}", COPIED),
    "the English prompt's words": ("Thought: x\nAnswer: The complete answer.", COPIED),
    "the words of a correction": ("Thought: x\nAnswer: 写给用户的答案正文", COPIED),
    "the prompt's words without a label": ("完整的答案", COPIED),
    "an unknown tool": (CALL.replace("lookup_knowledge", "web_search"), unknown("web_search")),
    "an unknown tool without input": ("Thought: x\nAction: 查询数据库", unknown("查询数据库")),
    "a longer name": (CALL.replace("lookup_knowledge", "lookup_knowledge_v2"), unknown("lookup_knowledge_v2")),
    "no input": (ACTION, INCOMPLETE),
    "an empty input": (ACTION + "Action Input: {}", INCOMPLETE),
    "an input that says none": (ACTION + 'Action Input: {"query": null}', INCOMPLETE),
    "the schema as input": (ACTION + 'Action Input: {"query": {"type": "string"}}', INCOMPLETE),
    "a made-up answer instead of the input": (ACTION + "Answer: 重启即可。", INCOMPLETE),
}


@pytest.mark.parametrize(("output", "told"), CORRECTED.values(), ids=CORRECTED.keys())
async def test_what_cannot_be_followed_is_told_as_an_observation_and_the_run_goes_on(
    agent: Agent, output: str, told: str
) -> None:
    run = await agent.run(output, CALL, ANSWER)
    assert run.answer == ANSWERED
    assert run.queries == ["ERR_TIMEOUT"]
    first, second, third = run.requests
    assert second[-1] == {"role": "user", "content": f"Observation: {told}"}
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[: len(first)] == first
    assert third[-1]["content"].startswith('Observation: {"found":true,')


@pytest.mark.parametrize(("output", "told"), CORRECTED.values(), ids=CORRECTED.keys())
async def test_what_cannot_be_followed_twice_leads_to_the_closing_call(agent: Agent, output: str, told: str) -> None:
    run = await agent.run(CALL, output, output, ANSWER)
    assert run.answer == ANSWERED
    assert len(run.requests) == 4
    closing = run.requests[-1]
    assert "不能再调用工具" in closing[-1]["content"]
    assert told not in "".join(message["content"] for message in closing)
    assert '"relevanceLevel":"PRECISE"' in closing[-1]["content"]


@pytest.mark.parametrize(("output", "told"), CORRECTED.values(), ids=CORRECTED.keys())
async def test_a_model_that_puts_out_nothing_else_ends_in_an_answer_that_says_so(
    agent: Agent, output: str, told: str
) -> None:
    run = await agent.run(output)
    assert run.answer == NO_ANSWER
    assert run.calls == []
    assert len(run.requests) == 3


async def test_a_run_with_each_problem_in_turn_ends_within_its_limit(agent: Agent) -> None:
    outputs = [output for output, _ in CORRECTED.values()]
    run = await agent.run(*outputs, executor=agent.executor(max_iterations=4))
    assert len(run.requests) <= 5
    assert run.answer


@pytest.mark.parametrize("last", ["", "Thought: x\nAnswer: 完整的答案", CALL, CALL + "\nAnswer: 重启即可。", "Answer:"])
async def test_a_closing_call_that_yields_nothing_ends_in_a_sentence_with_the_sources(agent: Agent, last: str) -> None:
    run = await agent.run(CALL, CALL, last, executor=agent.executor(max_iterations=2))
    assert run.answer == f"{NO_ANSWER}\n检索到的内容来自：{SOURCE}"
    assert len(run.requests) == 3


async def test_a_thought_is_taken_for_the_closing_answer_if_it_can_rest_on_results(agent: Agent) -> None:
    thought = f"Thought: {ANSWERED}"
    assert (await agent.run(CALL, CALL, thought, executor=agent.executor(max_iterations=2))).answer == ANSWERED
    assert (await agent.run(CALL, thought, executor=agent.executor(max_iterations=1))).answer == NO_ANSWER
    copied = "Thought: 说明依据"
    run = await agent.run(CALL, CALL, copied, executor=agent.executor(max_iterations=2))
    assert run.answer.startswith(NO_ANSWER)


async def test_corrections_are_in_the_language_of_the_run(agent: Agent) -> None:
    executor = agent.executor(locale="en")
    run = await agent.run(
        "", "Answer: the complete answer", CALL, CALL, "", question="What is ERR_TIMEOUT?", executor=executor
    )
    empty, copied, _, repeated = (request[-1]["content"] for request in run.requests[1:5])
    assert empty.startswith("Observation: The last output was empty.\nTo search, write:\nThought: The knowledge base")
    assert 'Action: lookup_knowledge\nAction Input: {"query": "What is ERR_TIMEOUT?"}\nTo answer, write:' in empty
    assert copied.startswith("Observation: The last output only copied the words or the example of the format.")
    assert repeated.startswith("Observation: This question has been searched already;")
    assert "No further tool calls are possible" in run.requests[-1][-1]["content"]
    assert run.answer == (
        f"No answer was reached within the allowed number of steps.\nWhat was retrieved comes from: {SOURCE}"
    )


async def test_instead_of_the_prompts_own_example_the_question_is_looked_up(agent: Agent) -> None:
    run = await agent.run(CALL, ANSWER, question="CROSSSLOT 怎么处理？")
    assert run.queries == ["CROSSSLOT 怎么处理？"]
    assert '{"query": "CROSSSLOT 怎么处理？"}' in run.requests[1][-2]["content"]


async def test_a_section_that_nobody_has_named_is_not_asked_for(agent: Agent) -> None:
    invented = CALL.replace('"}', '", "section_title": "Database Connection"}')
    named = CALL.replace('"}', '", "section_title": "重试与资金速查"}')
    run = await agent.run(invented, named, ANSWER, question="ERR_TIMEOUT 能重试吗？")
    assert [call.tool_kwargs for call in run.calls] == [
        {"query": "ERR_TIMEOUT"},
        {"query": "ERR_TIMEOUT", "section_title": "重试与资金速查"},
    ]


async def test_the_question_itself_is_no_answer_to_it(agent: Agent) -> None:
    run = await agent.run("Thought: x\nAnswer: CROSSSLOT 怎么处理", ANSWER, question="CROSSSLOT 怎么处理？")
    assert run.answer == ANSWERED
    assert "没有实际内容" in run.requests[1][-1]["content"]


@pytest.mark.parametrize("locale", ["zh", "en"])
async def test_the_template_words_of_a_prompt_are_known_as_they_stand_in_it(agent: Agent, locale: str) -> None:
    prompt = executor_prompt(locale)  # type: ignore[arg-type]
    forms = [line.partition(": ")[2] for line in prompt.splitlines() if line.startswith(("Thought: ", "Answer: "))]
    assert len(forms) == 3
    for form in forms:
        run = await agent.run(f"Thought: x\nAnswer: {form}", ANSWER)
        assert run.answer == ANSWERED
        assert "照抄了格式里的说明或示例" in run.requests[1][-1]["content"]


async def test_the_template_words_of_a_prompt_of_ones_own_are_known_too(agent: Agent) -> None:
    executor = agent.executor()
    executor.formatter = ReActChatFormatter(
        system_header="{tool_desc}\n{tool_names}\nThought: 想一想\nAnswer: 给用户的最终回答，注明来源文件"
    )
    run = await agent.run(CALL, "Answer: 给用户的最终回答，注明来源文件", ANSWER, executor=executor)
    assert run.answer == ANSWERED
    assert "照抄了格式里的说明或示例" in run.requests[2][-1]["content"]


async def test_the_closing_request_is_known_as_template_words(agent: Agent) -> None:
    for locale, words in (("zh", "完整的答案"), ("en", "the complete answer")):
        executor = agent.executor(locale=locale, max_iterations=1)
        run = await agent.run(CALL, f"Thought: x\nAnswer: {words}", executor=executor)
        assert run.requests[-1][-1]["content"].endswith(f"Answer: {words}")
        assert words not in run.answer
