/** Allowlists of the output items and stream events of a response, by type. Everything else is dropped. */
import { id, list, nullable, number, object, oneOf, opaque, or, tagged, text, type Clean, type Members } from '../allowlist.ts'
import { computerAction, localShellAction, mcpError, mcpTool, patchOperation, shellAction, webSearchAction } from './tool-actions.ts'

const status = oneOf('in_progress', 'completed', 'incomplete', 'searching', 'interpreting', 'generating', 'calling', 'failed')

const token = { token: text, logprob: number, bytes: list(number) }
export const logprobs = or(list(object({ ...token, top_logprobs: list(object(token)) })), [])

/** The same with the bytes and the alternatives that events, and some servers, leave out. */
export const wholeLogprobs: Clean = (value, ids) =>
  (logprobs(value, ids) as Members[]).map((one) => ({
    ...withBytes(one),
    top_logprobs: ((one['top_logprobs'] ?? []) as Members[]).map(withBytes),
  }))

function withBytes(one: Members): Members {
  const given = { token: '', logprob: 0, ...one }
  return Array.isArray(one['bytes']) ? given : { ...given, bytes: [...Buffer.from(String(given.token))] }
}

const span = { start_index: or(number, 0), end_index: or(number, 0) }

/** A citation in a text. Servers leave out what the wire requires. */
export const annotation = tagged({
  url_citation: object({ type: text, ...span, url: or(text, ''), title: or(text, '') }),
  file_citation: object({ type: text, file_id: id('file_'), filename: or(text, ''), index: or(number, 0) }),
  container_file_citation: object({
    type: text,
    container_id: id('cntr_'),
    file_id: id('cfile_'),
    filename: or(text, ''),
    ...span,
  }),
  file_path: object({ type: text, file_id: id('file_'), index: or(number, 0) }),
})

/** A content part of a message or of a reasoning item. */
export const part = tagged({
  output_text: object({ type: text, text: or(text, ''), annotations: or(list(annotation), []), logprobs: wholeLogprobs }),
  refusal: object({ type: text, refusal: or(text, '') }),
  reasoning_text: object({ type: text, text: or(text, '') }),
  summary_text: object({ type: text, text: or(text, '') }),
})

/** What only its upstream can read. The form can name a vendor, and even its model. */
const encryptedContent: Clean = (value, ids) => (typeof value === 'string' && value !== '' ? ids.seal('enc', value) : text(value, ids))

const item = (prefix: string, members: Record<string, Clean>): Clean => object({ id: id(prefix), type: text, status, ...members })
const callId = id('call_')
const screen = object({ type: text, image_url: text, file_id: id('file_') })
const outcome = object({ type: text, exit_code: number })

/**
 * The items of a response. Arguments and outputs of tools are text of the model or defined by the client's tools: they pass whole where the wire does not
 * define their form.
 */
export const outputItem = tagged({
  message: item('msg_', { role: or(oneOf('assistant'), 'assistant'), content: or(list(part), []), phase: nullable(text) }),
  reasoning: item('rs_', { summary: or(list(part), []), content: nullable(list(part)), encrypted_content: nullable(encryptedContent) }),
  function_call: item('fc_', { call_id: callId, name: or(text, ''), namespace: nullable(text), arguments: or(text, '') }),
  custom_tool_call: item('ctc_', { call_id: callId, name: or(text, ''), namespace: nullable(text), input: or(text, '') }),
  web_search_call: item('ws_', { action: webSearchAction }),
  file_search_call: item('fs_', {
    queries: or(list(text), []),
    results: nullable(list(object({ file_id: id('file_'), filename: text, score: number, text, attributes: opaque }))),
  }),
  code_interpreter_call: item('ci_', {
    code: or(text, null),
    container_id: id('cntr_'),
    outputs: or(list(object({ type: text, logs: text, url: text })), null),
  }),
  image_generation_call: item('ig_', {
    result: or(text, null),
    revised_prompt: text,
    background: text,
    output_format: text,
    quality: text,
    size: text,
  }),
  computer_call: item('cu_', {
    call_id: callId,
    action: computerAction,
    actions: list(computerAction),
    pending_safety_checks: or(list(object({ id: id('sc_'), code: text, message: text })), []),
  }),
  computer_call_output: item('cuo_', { call_id: callId, output: screen }),
  local_shell_call: item('lsh_', { call_id: callId, action: localShellAction }),
  shell_call: item('sh_', { call_id: callId, action: shellAction }),
  shell_call_output: item('sho_', {
    call_id: callId,
    output: list(object({ stdout: text, stderr: text, outcome })),
    max_output_length: nullable(number),
  }),
  apply_patch_call: item('apc_', { call_id: callId, operation: patchOperation }),
  mcp_call: item('mcp_', {
    server_label: text,
    name: text,
    arguments: text,
    output: nullable(text),
    error: mcpError,
    approval_request_id: nullable(id('mcpr_')),
  }),
  mcp_list_tools: item('mcpl_', { server_label: text, tools: or(list(mcpTool), []), error: mcpError }),
  mcp_approval_request: item('mcpr_', { server_label: text, name: text, arguments: text }),
  tool_search_call: item('tsc_', { call_id: nullable(callId), execution: oneOf('server', 'client'), arguments: opaque }),
  tool_search_output: item('tso_', { call_id: nullable(callId), execution: oneOf('server', 'client'), tools: opaque }),
  compaction: item('cmp_', { encrypted_content: encryptedContent }),
  context_compaction: item('cmp_', { encrypted_content: nullable(encryptedContent) }),
})

/** The members of replayed items that were encrypted for the client. */
export const REPLAYED_IDS = ['id', 'call_id', 'approval_request_id', 'encrypted_content'] as const

/** The members of all streamed events beside `type` and `sequence_number`. */
export const eventMembers: Record<string, Clean> = {
  item_id: id('item_'),
  output_index: number,
  content_index: number,
  summary_index: number,
  annotation_index: number,
  partial_image_index: number,
  item: outputItem,
  part,
  annotation,
  delta: text,
  text,
  refusal: text,
  name: text,
  arguments: text,
  input: text,
  code: text,
  partial_image_b64: text,
  obfuscation: text,
}

export const EVENTS_WITH_LOGPROBS = ['response.output_text.delta', 'response.output_text.done']

const steps = (name: string, ...states: string[]) => states.map((state) => `response.${name}.${state}`)

/** All events of the wire but those that carry the whole response. */
export const EVENTS = new Set([
  ...steps('output_item', 'added', 'done'),
  ...steps('content_part', 'added', 'done'),
  ...steps('output_text', 'delta', 'done', 'annotation.added'),
  ...steps('refusal', 'delta', 'done'),
  ...steps('function_call_arguments', 'delta', 'done'),
  ...steps('custom_tool_call_input', 'delta', 'done'),
  ...steps('reasoning_summary_part', 'added', 'done'),
  ...steps('reasoning_summary_text', 'delta', 'done'),
  ...steps('reasoning_text', 'delta', 'done'),
  ...steps('web_search_call', 'in_progress', 'searching', 'completed'),
  ...steps('file_search_call', 'in_progress', 'searching', 'completed'),
  ...steps('code_interpreter_call', 'in_progress', 'interpreting', 'completed'),
  ...steps('code_interpreter_call_code', 'delta', 'done'),
  ...steps('image_generation_call', 'in_progress', 'generating', 'partial_image', 'completed'),
  ...steps('mcp_call', 'in_progress', 'completed', 'failed'),
  ...steps('mcp_call_arguments', 'delta', 'done'),
  ...steps('mcp_list_tools', 'in_progress', 'completed', 'failed'),
  ...steps('audio', 'delta', 'done'),
  ...steps('audio.transcript', 'delta', 'done'),
])
