/** Part of snippets.ts: clients of the Coding Plan API. Verbatim from docs/clients. */
import type { Part } from './snippets.ts'

export const CURL_CODING: Part[] = [
  {
    title: 'A chat completion',
    text: `curl $BASE/v1/chat/completions -H "Authorization: Bearer $TOLLGATE_API_KEY" -H 'Content-Type: application/json' \\
  -d '{"model":"svc-code","messages":[{"role":"user","content":"Hello"}]}'`,
  },
  {
    title: 'A streamed response',
    text: `curl -N $BASE/v1/responses -H "Authorization: Bearer $TOLLGATE_API_KEY" -H 'Content-Type: application/json' \\
  -d '{"model":"svc-code","input":"Hello","stream":true}'`,
  },
  {
    title: 'Models and usage',
    text: `curl $BASE/v1/models -H "Authorization: Bearer $TOLLGATE_API_KEY"
curl $BASE/v1/usage -H "Authorization: Bearer $TOLLGATE_API_KEY"`,
  },
]

export const OPENAI_PYTHON: Part[] = [
  {
    title: 'Python',
    text: `import os
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key=os.environ["TOLLGATE_API_KEY"])

chat = client.chat.completions.create(model="svc-code", messages=[{"role": "user", "content": "Hello"}])
print(chat.choices[0].message.content)

with client.responses.stream(model="svc-code", input="Hello") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)`,
  },
]

export const OPENAI_JS: Part[] = [
  {
    title: 'JavaScript',
    text: `import OpenAI from 'openai'

const client = new OpenAI({ baseURL: 'http://127.0.0.1:8080/v1', apiKey: process.env.TOLLGATE_API_KEY })

const chat = await client.chat.completions.create({ model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] })
console.log(chat.choices[0].message.content)

const stream = await client.responses.create({ model: 'svc-code', input: 'Hello', stream: true })
for await (const event of stream) if (event.type === 'response.output_text.delta') process.stdout.write(event.delta)`,
  },
]

export const CODEX: Part[] = [
  {
    title: '~/.codex/config.toml',
    text: `model = "svc-code"
model_provider = "tollgate"
model_catalog_json = "~/.codex/tollgate-models.json"

[model_providers.tollgate]
name = "Tollgate"
base_url = "http://127.0.0.1:8080/v1"
env_key = "TOLLGATE_API_KEY"
wire_api = "responses"`,
  },
  {
    title: 'The model catalogue',
    text: `curl -s http://127.0.0.1:8080/v1/models -H "Authorization: Bearer $TOLLGATE_API_KEY" > ~/.codex/tollgate-models.json`,
  },
  { title: 'Try it', text: `codex exec "Say hello"` },
]

export const CLAUDE_CODE: Part[] = [
  {
    title: 'Shell, the models',
    text: `export ANTHROPIC_BASE_URL=http://127.0.0.1:8080
export ANTHROPIC_MODEL=svc-code
export ANTHROPIC_DEFAULT_OPUS_MODEL=svc-code
export ANTHROPIC_DEFAULT_SONNET_MODEL=svc-code
export ANTHROPIC_DEFAULT_HAIKU_MODEL=svc-code
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1`,
  },
  { title: 'Try it', text: `claude -p "Hello"` },
]

export const OPENCODE: Part[] = [
  {
    title: 'opencode.json',
    text: `{
  "$schema": "https://opencode.ai/config.json",
  "model": "tollgate/svc-code",
  "small_model": "tollgate/svc-code",
  "provider": {
    "tollgate": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Tollgate",
      "options": { "baseURL": "http://127.0.0.1:8080/v1", "apiKey": "{env:TOLLGATE_API_KEY}" },
      "models": { "svc-code": { "name": "svc-code", "limit": { "context": 128000, "output": 65536 } } }
    }
  }
}`,
  },
  { title: 'Try it', text: `opencode run "Hello"` },
]

export const CLINE: Part[] = [
  {
    title: 'Cline CLI',
    text: `cline auth --provider openai-compatible --apikey "$TOLLGATE_API_KEY" --modelid svc-code --baseurl http://127.0.0.1:8080/v1
cline -P openai-compatible "Say hello to me"`,
  },
]

export const CONTINUE: Part[] = [
  {
    title: '~/.continue/config.yaml',
    text: `name: Tollgate
version: 1.0.0
schema: v1
models:
  - name: svc-code
    provider: openai
    model: svc-code
    apiBase: http://127.0.0.1:8080/v1
    apiKey: svc_live_…
    roles: [chat, edit, apply]
    capabilities: [tool_use, image_input]
    defaultCompletionOptions:
      contextLength: 128000
      maxTokens: 8192`,
  },
  { title: 'Try it', text: `cn -p "Hello" --config ~/.continue/config.yaml` },
]

export const QWEN_CODE: Part[] = [
  {
    title: 'Shell, or .env',
    text: `export OPENAI_BASE_URL=http://127.0.0.1:8080/v1
export OPENAI_MODEL=svc-code`,
  },
  { title: '~/.qwen/settings.json', text: `{ "security": { "auth": { "selectedType": "openai" } }, "model": { "name": "svc-code" } }` },
  { title: 'Try it', text: `qwen -p "Hello"` },
]

export const AI_SDK: Part[] = [
  {
    title: 'JavaScript',
    text: `import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'

const tollgate = createOpenAICompatible({
  name: 'tollgate',
  baseURL: 'http://127.0.0.1:8080/v1',
  apiKey: process.env.TOLLGATE_API_KEY,
  includeUsage: true,
})
const model = tollgate('svc-code')

const { text, usage } = await generateText({ model, prompt: 'Hello' })
console.log(text, usage.totalTokens)

const { textStream } = streamText({ model, prompt: 'Hello' })
for await (const part of textStream) process.stdout.write(part)`,
  },
]

export const LANGCHAIN_JS: Part[] = [
  {
    title: 'JavaScript',
    text: `import { ChatOpenAI } from '@langchain/openai'

const model = new ChatOpenAI({
  model: 'svc-code',
  apiKey: process.env.TOLLGATE_API_KEY,
  configuration: { baseURL: 'http://127.0.0.1:8080/v1' },
})
const answer = await model.invoke('Hello')
console.log(answer.text, answer.usage_metadata)
for await (const part of await model.stream('Hello')) process.stdout.write(part.text)`,
  },
]

export const LANGCHAIN_PYTHON: Part[] = [
  {
    title: 'Python',
    text: `import os
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="svc-code", base_url="http://127.0.0.1:8080/v1", api_key=os.environ["TOLLGATE_API_KEY"])
print(model.invoke("Hello").content)
for part in model.stream("Hello"):
    print(part.text, end="", flush=True)`,
  },
]
