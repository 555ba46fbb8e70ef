/** Tools that clients run and that only the Responses wire has. Left out, an agent would silently be without its hands. */
import { own, type Members } from '../wires/allowlist.ts'
import { unsupported } from './unsupported-parameter.ts'

const LOST: unknown[] = ['shell', 'local_shell', 'apply_patch', 'computer', 'computer_use_preview']

/** Throws `unsupported_parameter` naming the first of them in the `tools` of a Responses request. Hosted ones are left out by the request policy. */
export function refuseLostTools(tools: unknown): void {
  const index = Array.isArray(tools) ? (tools as Members[]).findIndex((tool) => isLost(tool)) : -1
  if (index >= 0) throw unsupported(`tools[${index}]`)
}

function isLost(tool: Members): boolean {
  const environment = (own(tool, 'environment') ?? null) as Members | null
  return LOST.includes(own(tool, 'type')) && (environment === null || own(environment, 'type') === 'local')
}
