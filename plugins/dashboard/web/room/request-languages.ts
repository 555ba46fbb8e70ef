/** A request of the Media API in the languages that programs are written in. Pure. */
import type { Body } from './media-api.ts'

export type Language = 'curl' | 'javascript' | 'python' | 'mcp'
export const LANGUAGES: { value: Language; name: string }[] = [
  { value: 'curl', name: 'curl' },
  { value: 'javascript', name: 'JavaScript' },
  { value: 'python', name: 'Python' },
  { value: 'mcp', name: 'MCP' },
]

/** `variable` holds the key in the environment; `key` is the name of the key. */
type Where = { address: string; variable: string; key: string | null }

/** The code of a request, which waits for the result for up to a minute. */
export function requestIn(language: Language, body: Body, { address, variable, key }: Where): string {
  const url = `${address}/api/v1/${body.operation === undefined ? 'generations' : 'operations'}`
  const note = key === null ? '' : `${variable} holds the key ${key}.`
  switch (language) {
    case 'curl':
      return `${commented('#', note)}curl -s ${url} \\
  -H "Authorization: Bearer $${variable}" -H 'Content-Type: application/json' -H 'Prefer: wait=60' \\
  -d ${shell(JSON.stringify(body))}`
    case 'javascript':
      return `${commented('//', note)}const response = await fetch('${url}', {
  method: 'POST',
  headers: { authorization: \`Bearer \${process.env.${variable}}\`, 'content-type': 'application/json', prefer: 'wait=60' },
  body: JSON.stringify(${JSON.stringify(body)}),
})
const task = await response.json()
console.log(task.status, task.result)`
    case 'python':
      return `import json, os, urllib.request

${commented('#', note)}request = urllib.request.Request(
    "${url}",
    data=json.dumps(${python(body)}).encode(),
    headers={"Authorization": f"Bearer {os.environ['${variable}']}", "Content-Type": "application/json", "Prefer": "wait=60"},
)
task = json.load(urllib.request.urlopen(request))
print(task["status"], task["result"])`
    default:
      return toolCall(body, address, variable, note)
  }
}

function toolCall({ kind, operation, ...fields }: Body, address: string, variable: string, note: string): string {
  const call = { name: operation ?? `generate_${kind}`, arguments: { ...fields, wait_seconds: 45 } }
  return `${commented('//', note)}import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

const client = new Client({ name: 'example', version: '1' })
const headers = { Authorization: \`Bearer \${process.env.${variable}}\` }
await client.connect(new StreamableHTTPClientTransport(new URL('${address}/mcp'), { requestInit: { headers } }))
const { structuredContent } = await client.callTool(${JSON.stringify(call)})
console.log(structuredContent)
await client.close()`
}

const commented = (mark: string, note: string): string => (note === '' ? '' : `${mark} ${note}\n`)
const shell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** JSON with the words of Python. A string of JSON is one of Python, but for pairs of surrogates, which JSON.stringify leaves as characters. */
function python(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`
  if (typeof value === 'object' && value !== null)
    return `{${Object.entries(value)
      .map(([name, member]) => `${JSON.stringify(name)}: ${python(member)}`)
      .join(', ')}}`
  if (value === true) return 'True'
  if (value === false) return 'False'
  return value === null ? 'None' : JSON.stringify(value)
}
