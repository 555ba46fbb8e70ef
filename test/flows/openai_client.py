"""Client program of the OpenAI Python SDK test: prints the answers as one JSON object. The address and key are in the environment."""
import json

import openai

client = openai.OpenAI()
messages = [{"role": "user", "content": "Say hello"}]

chat = client.chat.completions.create(model="svc-code", messages=messages)
chunks = list(
    client.chat.completions.create(model="svc-code", messages=messages, stream=True, stream_options={"include_usage": True})
)
response = client.responses.create(model="svc-code", input="Say hello")
with client.responses.stream(model="svc-code", input="Say hello") as stream:
    events = [event.type for event in stream]
    final = stream.get_final_response()
compacted = client.responses.compact(model="svc-code", input=messages)
continued = client.responses.create(model="svc-code", input=[item.model_dump(exclude_none=True) for item in compacted.output])

try:
    client.chat.completions.create(model="other", messages=messages)
    refused = None
except openai.NotFoundError as error:
    refused = error.code

print(
    json.dumps(
        {
            "models": [model.id for model in client.models.list()],
            "chat": chat.choices[0].message.content,
            "chat_tokens": chat.usage.total_tokens,
            "chat_stream": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
            "chat_stream_tokens": chunks[-1].usage.total_tokens,
            "response": response.output_text,
            "response_stream": final.output_text,
            "last_event": events[-1],
            "compacted": [item.type for item in compacted.output],
            "continued": continued.output_text,
            "refused": refused,
        }
    )
)
