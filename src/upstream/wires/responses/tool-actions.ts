/** Allowlists of what the calls of tools in a response ask for, to the leaves. */
import { boolean, isMembers, list, nullable, number, object, oneOf, opaque, or, tagged, text, type Clean } from '../allowlist.ts'

const keys = { keys: nullable(list(text)) }
const point = { x: or(number, 0), y: or(number, 0) }

/** An environment: names and values. */
const texts: Clean = (value) =>
  isMembers(value) ? Object.fromEntries(Object.entries(value).filter(([, one]) => typeof one === 'string')) : undefined

export const webSearchAction = tagged({
  search: object({
    type: text,
    query: text,
    queries: list(text),
    sources: list(object({ type: oneOf('url'), url: text })),
  }),
  open_page: object({ type: text, url: nullable(text) }),
  find_in_page: object({ type: text, pattern: or(text, ''), url: or(text, '') }),
})

export const computerAction = tagged({
  click: object({ type: text, button: or(oneOf('left', 'right', 'wheel', 'back', 'forward'), 'left'), ...point, ...keys }),
  double_click: object({ type: text, ...point, ...keys }),
  drag: object({ type: text, path: or(list(object(point)), []), ...keys }),
  keypress: object({ type: text, keys: or(list(text), []) }),
  move: object({ type: text, ...point, ...keys }),
  screenshot: object({ type: text }),
  scroll: object({ type: text, ...point, scroll_x: or(number, 0), scroll_y: or(number, 0), ...keys }),
  type: object({ type: text, text: or(text, '') }),
  wait: object({ type: text }),
})

export const localShellAction = object({
  type: or(oneOf('exec'), 'exec'),
  command: or(list(text), []),
  env: or(texts, {}),
  timeout_ms: nullable(number),
  user: nullable(text),
  working_directory: nullable(text),
})

export const shellAction = object({ commands: or(list(text), []), max_output_length: or(number, null), timeout_ms: or(number, null) })

const patch = { type: text, path: or(text, '') }
export const patchOperation = tagged({
  create_file: object({ ...patch, diff: or(text, '') }),
  update_file: object({ ...patch, diff: or(text, '') }),
  delete_file: object(patch),
})

export const mcpTool = object({
  name: or(text, ''),
  description: nullable(text),
  input_schema: or(opaque, {}),
  annotations: object({ title: text, readOnlyHint: boolean, destructiveHint: boolean, idempotentHint: boolean, openWorldHint: boolean }),
})

/** That a call failed. Its words are the server's, and may name it. */
export const mcpError: Clean = (value, ids) => {
  if (value === null || value === undefined) return value
  const message = 'The tool failed.'
  return isMembers(value) ? { ...(mcpFailure(value, ids) as object), message } : message
}
const mcpFailure = object({ type: oneOf('http_error', 'protocol_error', 'tool_execution_error'), code: number })
