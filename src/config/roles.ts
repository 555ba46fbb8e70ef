/** The parts of the program that can run by themselves, and the backends that each opens: it can neither be held up nor misused through another. */
export const ROLES = ['gateway', 'worker', 'dispatcher', 'controller', 'all'] as const
export type Role = (typeof ROLES)[number]

/** In the order in which they are opened. */
export const BACKENDS = ['store', 'resources', 'upstreams', 'broker', 'files', 'engines'] as const
export type Backend = (typeof BACKENDS)[number]

const NEEDED: Record<Role, readonly Backend[]> = {
  gateway: ['store', 'upstreams', 'broker', 'files', 'engines'],
  worker: ['store', 'broker', 'files', 'engines'],
  dispatcher: ['store', 'broker'],
  // The service's price list is held against the limits of plans.
  controller: ['store', 'resources', 'engines'],
  all: BACKENDS,
}

/** Whether the role opens that backend. */
export function needs(role: Role, backend: Backend): boolean {
  return NEEDED[role].includes(backend)
}

/** Whether the role has the public listener. */
export function serves(role: Role): boolean {
  return needs(role, 'upstreams')
}
