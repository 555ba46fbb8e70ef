/** Tools of a Messages request that are loaded later, and those that its messages add and take away. */
import { isMembers, own, ownText, type Members } from '../wires/allowlist.ts'
import { TOOL_SEARCH } from './hosted-tools.ts'

/**
 * The tools at the end of the conversation, and their places: those of the request, with what its messages add and take away. Of those that
 * are loaded later the ones that a search of the client has found; all where the server was to search.
 */
export function currentTools(body: Members): [tool: Members, path: string][] {
  const tools = new Map<string, [Members, string]>()
  let isSearched = false
  for (const [index, tool] of ((own(body, 'tools') ?? []) as Members[]).entries()) {
    const path = `tools[${index}]`
    tools.set(ownText(tool, 'name') || path, [tool, path])
    isSearched ||= TOOL_SEARCH.test(ownText(tool, 'type'))
  }
  const removed = new Set<string>()
  const found = new Set([ownText((own(body, 'tool_choice') ?? {}) as Members, 'name')])
  for (const [index, message] of (own(body, 'messages') as Members[]).entries()) {
    const content = own(message, 'content')
    for (const [at, block] of (Array.isArray(content) ? (content as Members[]) : []).entries()) {
      const tool = own(block, 'tool')
      const results = own(block, 'type') === 'tool_result' ? own(block, 'content') : undefined
      if (Array.isArray(results)) for (const one of results as Members[]) found.add(ownText(one, 'tool_name'))
      if (!isMembers(tool)) continue
      const definition = own(tool, 'definition')
      const name = ownText(isMembers(definition) ? definition : tool, 'name')
      if (own(block, 'type') === 'tool_removal') removed.add(name)
      if (own(block, 'type') !== 'tool_addition') continue
      removed.delete(name)
      found.add(name)
      if (isMembers(definition)) tools.set(name, [definition, `messages[${index}].content[${at}]`])
    }
  }
  const isOffered = (name: string, tool: Members) => isSearched || own(tool, 'defer_loading') !== true || found.has(name)
  return [...tools].filter(([name, [tool]]) => !removed.has(name) && isOffered(name, tool)).map(([, tool]) => tool)
}

/** The tools of a request without those that are not loaded yet. Each other one counts, whatever its name: it is sent. */
export function loadedTools(body: Members): unknown {
  const tools = own(body, 'tools')
  if (!Array.isArray(tools) || !(tools as Members[]).some((tool) => own(tool, 'defer_loading') === true)) return tools
  const current = new Set(currentTools(body).map(([tool]) => tool))
  return (tools as Members[]).filter((tool) => own(tool, 'defer_loading') !== true || current.has(tool))
}
