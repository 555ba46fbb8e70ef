"""Runs one request with Anthropic's SDK, and its calls of a tool that adds. The argument is JSON; the answer's text goes to stdout."""
import json
import sys

import anthropic

asked = json.loads(sys.argv[1])
streamed = asked.pop("streamed")
messages = [{"role": "user", "content": asked.pop("content")}]
client = anthropic.Anthropic()
while True:
    request = {"model": "svc-code", "max_tokens": 4096, "messages": messages, **asked}
    if streamed:
        with client.messages.stream(**request) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**request)
    calls = [block for block in message.content if block.type == "tool_use"]
    if not calls:
        print("".join(block.text for block in message.content if block.type == "text"), end="")
        break
    messages.append({"role": "assistant", "content": message.content})
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + call.input["b"])} for call in calls]
    messages.append({"role": "user", "content": results})
