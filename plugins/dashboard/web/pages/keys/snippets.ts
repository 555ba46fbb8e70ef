/** How each client is configured. The texts are those of docs/clients, which test/dashboard compares: change both. */
import {
  AI_SDK,
  CLAUDE_CODE,
  CLINE,
  CODEX,
  CONTINUE,
  CURL_CODING,
  LANGCHAIN_JS,
  LANGCHAIN_PYTHON,
  OPENAI_JS,
  OPENAI_PYTHON,
  OPENCODE,
  QWEN_CODE,
} from './snippets-coding.ts'
import { variableOf } from '../../key-variable.ts'
import { CLAUDE_CODE_MCP, CODEX_MCP, CURL_MEDIA, MCP_INSPECTOR, MCP_SDK, MCP_SERVERS, OPENCODE_MCP, QWEN_MCP } from './snippets-media.ts'

/** `text` has the address of docs/clients, and where it has a key, that of the docs. */
export type Part = { title: string; text: string }
export type Client = { id: string; name: string; api: 'coding' | 'media'; doc: string; parts: Part[] }

/** What the docs write for the address and for a key. */
export const DOC_ADDRESS = 'http://127.0.0.1:8080'
export const DOC_KEY = 'svc_live_…'
const VARIABLES = { coding: 'TOLLGATE_API_KEY', media: 'SVC_API_KEY' } as const
/** Clients that take the key under a name of their own. */
const OWN_VARIABLES: Record<string, string> = { 'qwen-code': 'OPENAI_API_KEY', 'claude-code': 'ANTHROPIC_AUTH_TOKEN' }

export const CLIENTS: Client[] = [
  { id: 'curl', name: 'curl', api: 'coding', doc: 'curl.md', parts: CURL_CODING },
  { id: 'openai-python', name: 'OpenAI SDK, Python', api: 'coding', doc: 'openai-sdks.md', parts: OPENAI_PYTHON },
  { id: 'openai-js', name: 'OpenAI SDK, JavaScript', api: 'coding', doc: 'openai-sdks.md', parts: OPENAI_JS },
  { id: 'codex', name: 'Codex', api: 'coding', doc: 'codex.md', parts: CODEX },
  { id: 'claude-code', name: 'Claude Code', api: 'coding', doc: 'claude-code.md', parts: CLAUDE_CODE },
  { id: 'opencode', name: 'opencode', api: 'coding', doc: 'opencode.md', parts: OPENCODE },
  { id: 'cline', name: 'Cline', api: 'coding', doc: 'cline.md', parts: CLINE },
  { id: 'continue', name: 'Continue', api: 'coding', doc: 'continue.md', parts: CONTINUE },
  { id: 'qwen-code', name: 'Qwen Code', api: 'coding', doc: 'qwen-code.md', parts: QWEN_CODE },
  { id: 'ai-sdk', name: 'AI SDK', api: 'coding', doc: 'ai-sdk.md', parts: AI_SDK },
  { id: 'langchain-js', name: 'LangChain, JavaScript', api: 'coding', doc: 'langchain.md', parts: LANGCHAIN_JS },
  { id: 'langchain-python', name: 'LangChain, Python', api: 'coding', doc: 'langchain.md', parts: LANGCHAIN_PYTHON },
  { id: 'curl-media', name: 'curl', api: 'media', doc: 'curl.md', parts: CURL_MEDIA },
  { id: 'mcp-sdk', name: 'MCP, TypeScript SDK', api: 'media', doc: 'mcp-sdks.md', parts: MCP_SDK },
  { id: 'mcp-inspector', name: 'MCP Inspector', api: 'media', doc: 'mcp-sdks.md', parts: MCP_INSPECTOR },
  { id: 'mcp-servers', name: 'Claude Desktop, Cursor, VS Code', api: 'media', doc: 'mcp-servers.md', parts: MCP_SERVERS },
  { id: 'claude-code-mcp', name: 'Claude Code, with media tools', api: 'media', doc: 'claude-code.md', parts: CLAUDE_CODE_MCP },
  { id: 'codex-mcp', name: 'Codex, with media tools', api: 'media', doc: 'codex.md', parts: CODEX_MCP },
  { id: 'opencode-mcp', name: 'opencode, with media tools', api: 'media', doc: 'opencode.md', parts: OPENCODE_MCP },
  { id: 'qwen-mcp', name: 'Qwen Code, with media tools', api: 'media', doc: 'qwen-code.md', parts: QWEN_MCP },
]

/**
 * The line that sets the key, and the parts with the real address, the brand of the service and, in files that hold it, the key. `key` is
 * `null` until it is revealed.
 */
export function partsFor({ api, parts, id }: Client, address: string, brand: string, key: string | null): Part[] {
  const variable = OWN_VARIABLES[id] ?? variableOf(api, brand)
  const own = key ?? DOC_KEY.replace('svc', brand.toLowerCase())
  const filled = parts.map(({ title, text }) => ({
    title: branded(title, brand),
    text: branded(text, brand).replaceAll(VARIABLES[api], variable).replaceAll(DOC_ADDRESS, address).replaceAll(DOC_KEY, own),
  }))
  return [{ title: 'Shell', text: `export ${variable}=${own}${id.startsWith('curl') ? `\nexport BASE=${address}` : ''}` }, ...filled]
}

/** The name of the program in a text of the docs, where it is none of a variable: a provider, a file. */
function branded(text: string, brand: string): string {
  return text.replaceAll('Tollgate', brand).replaceAll('tollgate', brand.toLowerCase())
}
