/** Every member of a request, and every type of its items, blocks and tools, that the SDKs of OpenAI and Anthropic know: what becomes of it over each wire. A new one fails here until it is decided. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Failure } from '../../src/domain/errors.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { membersOf, sdkTypes, typesIn } from './sdk-types.ts'
import { ids } from './translation.ts'

const TARGET = { origin: 'one', model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }
const HI = [{ role: 'user', content: 'Hi' }]
const BASE: Record<WireName, object> = {
  chat: { model: 'svc-code', messages: HI },
  responses: { model: 'svc-code', input: HI },
  messages: { model: 'svc-code', max_tokens: 9000, messages: HI },
}
const READ: Record<WireName, (body: object) => ReturnType<typeof readChatRequest>> = {
  chat: (body) => readChatRequest(body, new Set()),
  responses: (body) => readResponsesRequest(body, new Set()),
  messages: (body) => readMessagesRequest(body, new Set(), { betas: [], promptTokens: () => 1 }),
}

/** The body that an upstream of this wire gets, or the failure. */
function sent(client: WireName, more: object, upstream: WireName): string | Failure {
  try {
    return READ[client](structuredClone({ ...BASE[client], ...more })).call(40_000, ids, () => 1, [upstream]).body(TARGET)
  } catch (error) {
    if (error instanceof Failure) return error
    throw error
  }
}

/** `c`: it reaches an upstream of this wire, in the form of that. `-`: it has no effect. `r`: the request is refused, with its place in `param`. One letter for an upstream of chat, responses and messages each. */
type Fates = string

function fatesOf(client: WireName, without: object, more: object, place: RegExp): Fates {
  return WIRES.map((upstream) => {
    const body = sent(client, more, upstream)
    if (body instanceof Failure) return place.test(String(body.facts.param)) ? 'r' : `refused at ${body.facts.param}`
    return body === sent(client, without, upstream) ? '-' : 'c'
  }).join('')
}

/** What a name does by default: `value` as it is sent. */
type Row = [fates: Fates, value: unknown, beside?: object]

const FUNCTION = { type: 'function', function: { name: 'f', parameters: { type: 'object' } } }
const TOOL = { type: 'function', name: 'f', parameters: { type: 'object' }, strict: false }
const USE = { name: 'f', input_schema: { type: 'object' } }

const CHAT: Record<string, Row> = {
  messages: ['ccc', [{ role: 'user', content: 'Ho' }]],
  model: ['rrr', 'other'],
  audio: ['c--', { voice: 'alloy', format: 'mp3' }],
  frequency_penalty: ['ccr', 1],
  function_call: ['ccc', 'none', { functions: [FUNCTION.function] }],
  functions: ['ccc', [FUNCTION.function]],
  logit_bias: ['crr', { 1: 2 }],
  logprobs: ['ccr', true],
  max_completion_tokens: ['ccc', 10],
  max_tokens: ['ccc', 10],
  metadata: ['-c-', { a: 'b' }],
  modalities: ['crr', ['audio']],
  moderation: ['---', { model: 'x' }],
  n: ['crr', 2],
  parallel_tool_calls: ['ccc', false, { tools: [FUNCTION] }],
  prediction: ['c--', { type: 'content', content: 'x' }],
  presence_penalty: ['ccr', 1],
  prompt_cache_key: ['cc-', 'k'],
  prompt_cache_options: ['---', {}],
  prompt_cache_retention: ['---', '24h'],
  reasoning_effort: ['ccc', 'low'],
  response_format: ['ccc', { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' } } }],
  safety_identifier: ['ccc', 's'],
  seed: ['c--', 1],
  service_tier: ['cc-', 'default'],
  stop: ['c-c', 'x'],
  store: ['---', true],
  stream: ['ccc', true],
  stream_options: ['---', { include_usage: true }],
  temperature: ['ccc', 0.5],
  tool_choice: ['ccc', 'required', { tools: [FUNCTION] }],
  tools: ['ccc', [FUNCTION]],
  top_logprobs: ['ccr', 2],
  top_p: ['ccc', 0.5],
  user: ['ccc', 'u'],
  verbosity: ['cc-', 'low'],
  web_search_options: ['---', {}],
}

const RESPONSES: Record<string, Row> = {
  access_programs: ['---', ['x']],
  background: ['rrr', true],
  context_management: ['-c-', [{ type: 'compaction', compact_threshold: 1000 }]],
  conversation: ['rrr', 'c'],
  image: ['---', {}],
  include: ['ccr', ['message.output_text.logprobs']],
  input: ['ccc', 'Ho'],
  instructions: ['ccc', 'Be brief.'],
  max_output_tokens: ['ccc', 10],
  max_tool_calls: ['-c-', 3],
  metadata: ['-c-', { a: 'b' }],
  model: ['rrr', 'other'],
  moderation: ['---', {}],
  parallel_tool_calls: ['ccc', false, { tools: [TOOL] }],
  previous_response_id: ['rrr', 'r'],
  prompt: ['rrr', { id: 'p' }],
  prompt_cache_key: ['cc-', 'k'],
  prompt_cache_options: ['---', {}],
  prompt_cache_retention: ['---', '24h'],
  reasoning: ['ccc', { effort: 'low' }],
  safety_identifier: ['ccc', 's'],
  service_tier: ['cc-', 'default'],
  store: ['---', true],
  stream: ['ccc', true],
  stream_options: ['-c-', { include_obfuscation: false }, { stream: true }],
  temperature: ['ccc', 0.5],
  text: ['ccc', { format: { type: 'json_schema', name: 'n', schema: { type: 'object' } } }],
  tool_choice: ['ccc', 'required', { tools: [TOOL] }],
  tools: ['ccc', [TOOL]],
  top_logprobs: ['ccr', 2],
  top_p: ['ccc', 0.5],
  truncation: ['-c-', 'auto'],
  user: ['ccc', 'u'],
}

/** Of the wire with all its betas: Claude Code sends these. */
const MESSAGES: Record<string, Row> = {
  max_tokens: ['ccc', 10],
  messages: ['ccc', [{ role: 'user', content: 'Ho' }]],
  model: ['rrr', 'other'],
  billing_policy: ['---', {}],
  cache_control: ['--c', { type: 'ephemeral' }],
  compaction: ['rrr', {}],
  container: ['---', 'c'],
  context_management: ['--c', { edits: [{ type: 'clear_tool_uses_20250919' }] }],
  diagnostics: ['---', {}],
  fallback_credit_token: ['---', 'x'],
  fallbacks: ['---', []],
  inference_geo: ['---', 'eu'],
  mcp_servers: ['---', [{ type: 'url', url: 'https://a.test', name: 'a' }]],
  metadata: ['ccc', { user_id: 'u' }],
  output_config: ['ccc', { format: { type: 'json_schema', schema: { type: 'object' } } }],
  output_format: ['ccc', { type: 'json_schema', schema: { type: 'object' } }],
  service_tier: ['--c', 'standard_only'],
  speed: ['---', 'fast'],
  stop_sequences: ['--c', ['x']],
  stream: ['ccc', true],
  system: ['ccc', 'Be brief.'],
  thinking: ['ccc', { type: 'enabled', budget_tokens: 2000 }],
  thread: ['---', {}],
  tool_choice: ['ccc', { type: 'any' }, { tools: [USE] }],
  tools: ['ccc', [USE]],
  betas: ['---', ['x']],
  user_profile_id: ['---', 'x'],
  workspace_id: ['---', 'x'],
}

/** Items of the input of a response. */
const ITEMS: Record<string, Fates> = {
  message: 'ccc',
  function_call: 'ccc',
  function_call_output: 'ccc',
  custom_tool_call: 'ccc',
  custom_tool_call_output: 'ccc',
  additional_tools: 'ccc',
  compaction_trigger: 'ccc',
  // What cannot be read elsewhere, and what the client runs.
  compaction: 'rcr',
  item_reference: 'rrr',
  configuration_update: 'rcr',
  tool_search_call: 'rcr',
  tool_search_output: 'rcr',
  ...fatesFor('rcr', 'computer_call computer_call_output local_shell_call local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output'),
  // Reasoning of another model, and items of hosted tools.
  reasoning: '-c-',
  ...fatesFor('-c-', `file_search_call web_search_call image_generation_call code_interpreter_call mcp_list_tools mcp_approval_request
    mcp_approval_response mcp_call program program_output`),
}
const TOOLS: Record<string, Fates> = {
  ...fatesFor('ccc', 'function custom namespace'),
  ...fatesFor('rcr', 'computer computer_use_preview local_shell shell apply_patch tool_search'),
  ...fatesFor('---', `file_search web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 mcp code_interpreter
    programmatic_tool_calling image_generation`),
}
/** Blocks of an assistant's turn of the Messages wire, but for those that a user alone sends. */
const BLOCKS: Record<string, Fates> = {
  ...fatesFor('ccc', 'text image document search_result tool_use tool_result'),
  // Signed by another service.
  ...fatesFor('---', 'thinking redacted_thinking'),
  ...fatesFor('rrc', 'server_tool_use web_search_tool_result tool_search_tool_result'),
  ...fatesFor('rrr', `web_fetch_tool_result advisor_tool_result code_execution_tool_result bash_code_execution_tool_result
    text_editor_code_execution_tool_result mcp_tool_use mcp_tool_result container_upload compaction mcp_tool_listing fallback`),
  tool_addition: 'ccc',
  tool_removal: 'ccc',
}
const MESSAGE_TOOLS: Record<string, Fates> = {
  custom: 'ccc',
  ...fatesFor('ccc', 'bash_20241022 bash_20250124 computer_20241022 computer_20250124 computer_20251124 memory_20250818'),
  ...fatesFor('ccc', 'text_editor_20241022 text_editor_20250124 text_editor_20250429 text_editor_20250728'),
  ...fatesFor('rrc', 'browser_toolset_20260801 computer_toolset_20260801'),
  ...fatesFor('---', `code_execution_20250522 code_execution_20250825 code_execution_20260120 code_execution_20260521 web_search_20250305
    web_search_20260209 web_search_20260318 web_fetch_20250910 web_fetch_20260209 web_fetch_20260309 web_fetch_20260318 advisor_20260301
    mcp_toolset`),
  ...fatesFor('--c', 'tool_search_tool_bm25_20251119 tool_search_tool_bm25 tool_search_tool_regex_20251119 tool_search_tool_regex'),
}
const PARTS: Record<string, Fates> = { text: 'ccc', image_url: 'ccc', input_audio: 'crr', file: 'ccc' }
const CHAT_TOOLS: Record<string, Fates> = fatesFor('ccc', 'function custom')

function fatesFor(fates: Fates, names: string): Record<string, Fates> {
  return Object.fromEntries(names.split(/\s+/).map((name) => [name, fates]))
}

const PDF = 'data:application/pdf;base64,JVBERi0='
/** An item of any type. */
const item = (type: string) => ({
  type, id: 'i_1', call_id: 'c1', name: 'n', arguments: '{}', input: 'i', output: 'o', role: 'user', content: 'c', action: { type: 'x' }, operation: {}, encrypted_content: 'x', summary: [],
  tools: [TOOL], queries: [], code: 'x', result: 'x', execution: 'client',
})
const block = (type: string) => ({
  type, text: 't', source: type === 'image' ? { type: 'base64', media_type: 'image/png', data: 'AAAA' } : type === 'search_result' ? 's' : { type: 'base64', media_type: 'application/pdf', data: 'AAAA' }, title: 't',
  content: [{ type: 'text', text: 'a' }], thinking: 'h', signature: 's', tool: type === 'tool_removal' ? { type: 'tool_reference', name: 'f' } : { type: 'tool_definition', definition: { ...USE, name: 'g' } }, data: 'd', id: 'i', name: 'n', input: {}, tool_use_id: 'i',
})
const part = (type: string) => ({ type, text: 't', image_url: { url: 'data:image/png;base64,AAAA' }, input_audio: { data: 'AAAA', format: 'wav' }, file: { file_data: PDF, filename: 'a.pdf' } })

type Types = { client: WireName; union: string; fates: Record<string, Fates>; more(type: string): object; without: object; place: RegExp }

const OF_RESPONSES: Types[] = [
  { client: 'responses', union: 'ResponseInputItem', fates: ITEMS, more: (type) => ({ input: [...HI, item(type)] }), without: { input: HI }, place: /^input\[1\]/ },
  { client: 'responses', union: 'Tool', fates: TOOLS, more: (type) => ({ tools: [{ ...TOOL, type, execution: 'client', tools: [TOOL] }] }), without: {}, place: /^tools\[0\]/ },
]
const userBlocks = ['image', 'document', 'search_result', 'tool_result']
const turnWith = (type: string, blocks: object[]) => ({ tools: [USE], messages: [...HI, { role: userBlocks.includes(type) ? 'user' : 'assistant', content: [{ type: 'text', text: 'x' }, ...blocks] }] })
const OF_MESSAGES: Types[] = [
  ...Object.keys(BLOCKS).map((type): Types => ({ client: 'messages', union: 'BetaContentBlockParam', fates: { [type]: BLOCKS[type] ?? '' }, more: () => turnWith(type, [block(type)]), without: turnWith(type, []), place: /^messages\[1\]\.content\[1\]/ })),
  { client: 'messages', union: 'BetaToolUnion', fates: MESSAGE_TOOLS, more: (type) => ({ tools: [{ ...USE, type }] }), without: {}, place: /^tools\[0\]/ },
]
const OF_CHAT: Types[] = [
  { client: 'chat', union: 'ChatCompletionContentPart', fates: PARTS, more: (type) => ({ messages: [{ role: 'user', content: [part(type)] }] }), without: {}, place: /^messages/ },
  { client: 'chat', union: 'ChatCompletionTool', fates: CHAT_TOOLS, more: (type) => ({ tools: [{ type, function: FUNCTION.function, ...(type === 'custom' ? { custom: { name: 'f' }, function: undefined } : {}) }] }), without: {}, place: /^tools/ },
]

const DOCUMENTS = ['coding.md', 'upstreams.md'].map((file) => readFileSync(join(import.meta.dirname, '../../docs', file), 'utf8')).join('\n')

function checkMembers(t: Test, client: WireName, rows: Record<string, Row>, known: string[]): void {
  t.same(known.filter((name) => !(name in rows)), [], 'each member of the SDK has a row')
  t.same(Object.keys(rows).filter((name) => !known.includes(name)), [], 'and no row is without one')
  for (const [name, [fates, value, beside = {}]] of Object.entries(rows)) {
    t.equal(fatesOf(client, beside, { ...beside, [name]: value }, new RegExp(`^${name}`)), fates, name)
    if (fates.includes('-')) t.ok(DOCUMENTS.includes(`\`${name}\``), `${name} has no effect somewhere: the documents say so`)
  }
}

function checkTypes(t: Test, types: string, rows: Types[]): void {
  for (const union of new Set(rows.map((one) => one.union))) {
    const named = rows.filter((one) => one.union === union).flatMap(({ fates }) => Object.keys(fates))
    t.same([...new Set(typesIn(types, union))].toSorted(), named.toSorted(), `each type of ${union} has a row`)
  }
  for (const { client, union, fates, more, without, place } of rows)
    for (const [type, expected] of Object.entries(fates)) t.equal(fatesOf(client, without, more(type), place), expected, `${union} ${type}`)
}

t.test('a chat completion', async (t) => {
  const types = sdkTypes(t, 'openai-node', 'chat/completions/completions.d.ts')
  if (types === null) return
  checkMembers(t, 'chat', CHAT, membersOf(types, 'ChatCompletionCreateParamsBase'))
  checkTypes(t, types, OF_CHAT)
})

t.test('a response', async (t) => {
  const types = sdkTypes(t, 'openai-node', 'responses/responses.d.ts')
  if (types === null) return
  checkMembers(t, 'responses', RESPONSES, membersOf(types, 'ResponseCreateParamsBase'))
  checkTypes(t, types, OF_RESPONSES)
})

t.test('a message', async (t) => {
  const types = sdkTypes(t, 'anthropic-node', 'beta/messages/messages.d.ts')
  if (types === null) return
  checkMembers(t, 'messages', MESSAGES, membersOf(types, 'MessageCreateParamsBase'))
  checkTypes(t, types, OF_MESSAGES)
})
