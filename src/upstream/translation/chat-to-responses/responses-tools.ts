/** The tools of a chat request, also the older `functions`, as tools of a Responses request. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import { unsupported } from '../unsupported-parameter.ts'

/** Whether the client uses the older `functions` and must get its call as `function_call`. */
export function hasFunctions(body: Members): boolean {
  return Array.isArray(own(body, 'functions')) && !Array.isArray(own(body, 'tools'))
}

/** `tools` and `tool_choice`; none without tools. `marks`: whether tools keep their `cache_control`. Throws `unsupported_parameter` for a tool in the form of another wire. */
export function responsesToolMembers(body: Members, marks: boolean): Members {
  const legacy = hasFunctions(body)
  const tools = legacy
    ? (own(body, 'functions') as Members[]).map(functionTool)
    : ((own(body, 'tools') ?? []) as Members[]).flatMap((tool, index) => {
        const built = toolOf(tool, `tools[${index}]`)
        const mark = marks ? own(tool, 'cache_control') : undefined
        return built ? (isMembers(mark) ? { ...built, cache_control: mark } : built) : []
      })
  const choice = toolChoice(own(body, legacy ? 'function_call' : 'tool_choice'))
  return tools.length === 0 ? {} : { tools, ...(choice === undefined ? {} : { tool_choice: choice }) }
}

/** Null for a hosted tool. */
function toolOf(tool: Members, path: string): Members | null {
  const declared = own(tool, 'function')
  const custom = own(tool, 'custom')
  if (isMembers(declared)) return functionTool(declared)
  if (!isMembers(custom)) {
    if (['function', 'custom'].includes(ownText(tool, 'type'))) throw unsupported(path)
    return null
  }
  const format = own(custom, 'format')
  const grammar = isMembers(format) && own(format, 'grammar')
  return { type: 'custom', ...custom, ...(isMembers(grammar) ? { format: { type: 'grammar', ...grammar } } : {}) }
}

/** On the Responses wire `strict` is true unless it is false, on chat it is the reverse. */
function functionTool(declared: Members): Members {
  return {
    type: 'function',
    name: own(declared, 'name'),
    ...(own(declared, 'description') === undefined ? {} : { description: own(declared, 'description') }),
    parameters: own(declared, 'parameters') ?? { type: 'object', properties: {} },
    strict: own(declared, 'strict') === true,
  }
}

function toolChoice(choice: unknown): unknown {
  if (!isMembers(choice)) return choice ?? undefined
  const allowed = own(choice, 'allowed_tools')
  if (isMembers(allowed)) {
    const listed = own(allowed, 'tools')
    const tools = (Array.isArray(listed) ? listed : []).filter(isMembers).map(namedTool)
    return { type: 'allowed_tools', mode: own(allowed, 'mode') ?? 'auto', tools }
  }
  return namedTool(choice)
}

/** `{type, function: {name}}`, `{type, custom: {name}}`, or the older `{name}`. */
function namedTool(tool: Members): Members {
  const custom = own(tool, 'custom')
  const named = custom ?? own(tool, 'function')
  return { type: isMembers(custom) ? 'custom' : 'function', name: own(isMembers(named) ? named : tool, 'name') }
}
