/** Part of snippets.ts: clients of the Media API. Verbatim from docs/clients. */
import type { Part } from './snippets.ts'

export const CURL_MEDIA: Part[] = [
  {
    title: 'The price',
    text: `curl "$BASE/api/v1/generations?dry_run=true" -H "Authorization: Bearer $SVC_API_KEY" -H 'Content-Type: application/json' \\
  -d '{"kind":"video","prompt":"Waves","duration_seconds":2}'`,
  },
  {
    title: 'Generate',
    text: `curl -s $BASE/api/v1/generations -H "Authorization: Bearer $SVC_API_KEY" -H 'Content-Type: application/json' \\
  -H 'Idempotency-Key: waves-1' -H 'Prefer: wait=60' \\
  -d '{"kind":"video","prompt":"Waves","duration_seconds":2}' | tee task.json`,
  },
  { title: 'Save the result', text: `curl -o waves.mp4 "$(node -p 'JSON.parse(fs.readFileSync("task.json")).result.video_url')"` },
  {
    title: 'The task, and usage',
    text: `ID=$(node -p 'JSON.parse(fs.readFileSync("task.json")).id')
curl $BASE/api/v1/generations/$ID -H "Authorization: Bearer $SVC_API_KEY"
curl "$BASE/api/v1/generations?limit=5" -H "Authorization: Bearer $SVC_API_KEY"
curl -X POST $BASE/api/v1/generations/$ID/cancel -H "Authorization: Bearer $SVC_API_KEY" # 409: it has ended
curl $BASE/api/v1/usage -H "Authorization: Bearer $SVC_API_KEY"`,
  },
]

export const MCP_SDK: Part[] = [
  {
    title: 'JavaScript',
    text: `import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

const client = new Client({ name: 'example', version: '1' })
const headers = { Authorization: \`Bearer \${process.env.SVC_API_KEY}\` }
await client.connect(new StreamableHTTPClientTransport(new URL('http://127.0.0.1:8080/mcp'), { requestInit: { headers } }))
const { structuredContent } = await client.callTool({ name: 'generate_image', arguments: { prompt: 'a lighthouse', wait_seconds: 45 } })
console.log(structuredContent)
await client.close()`,
  },
]

export const MCP_INSPECTOR: Part[] = [
  {
    title: 'Shell',
    text: `npx @modelcontextprotocol/inspector --cli http://127.0.0.1:8080/mcp --transport http \\
  --header "Authorization: Bearer $SVC_API_KEY" \\
  --method tools/call --tool-name generate_image --tool-arg 'prompt=a lighthouse' --tool-arg wait_seconds=45`,
  },
]

export const CODEX_MCP: Part[] = [
  {
    title: '~/.codex/config.toml',
    text: `[mcp_servers.media]
url = "http://127.0.0.1:8080/mcp"
bearer_token_env_var = "SVC_API_KEY"
tool_timeout_sec = 60
required = true`,
  },
]

export const OPENCODE_MCP: Part[] = [
  {
    title: 'opencode.json',
    text: `{
  "mcp": {
    "media": {
      "type": "remote",
      "url": "http://127.0.0.1:8080/mcp",
      "headers": { "Authorization": "Bearer {env:SVC_API_KEY}" },
      "oauth": false
    }
  }
}`,
  },
]

export const QWEN_MCP: Part[] = [
  {
    title: '~/.qwen/settings.json',
    text: `{
  "mcpServers": {
    "media": {
      "httpUrl": "http://127.0.0.1:8080/mcp",
      "headers": { "Authorization": "Bearer $SVC_API_KEY" }
    }
  }
}`,
  },
]

export const CLAUDE_CODE_MCP: Part[] = [
  {
    title: 'Shell, once',
    text: `claude mcp add --transport http media http://127.0.0.1:8080/mcp --header "Authorization: Bearer $SVC_API_KEY"`,
  },
  { title: 'Try it', text: `claude mcp list` },
]

export const MCP_SERVERS: Part[] = [
  {
    title: 'Cursor: ~/.cursor/mcp.json, and other clients with mcpServers',
    text: `{
  "mcpServers": {
    "media": {
      "url": "http://127.0.0.1:8080/mcp",
      "headers": { "Authorization": "Bearer svc_live_…" }
    }
  }
}`,
  },
  {
    title: 'VS Code: .vscode/mcp.json',
    text: `{
  "servers": {
    "media": {
      "type": "http",
      "url": "http://127.0.0.1:8080/mcp",
      "headers": { "Authorization": "Bearer svc_live_…" }
    }
  }
}`,
  },
  {
    title: 'Claude Desktop: claude_desktop_config.json',
    text: `{
  "mcpServers": {
    "media": {
      "command": "npx",
      "args": ["-y", "mcp-remote", "http://127.0.0.1:8080/mcp", "--header", "Authorization: Bearer svc_live_…"]
    }
  }
}`,
  },
]
