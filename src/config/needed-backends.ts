/** Roles and the backends that each opens. A role never opens a backend that it does not need. */
export const ROLES = ['gateway', 'worker', 'dispatcher', 'controller', 'all'] as const
export type Role = (typeof ROLES)[number]

/** In the order of opening. */
const BACKENDS = ['store', 'resources', 'upstreams', 'broker', 'files', 'engines'] as const
export type Backend = (typeof BACKENDS)[number]

const NEEDED: Record<Role, readonly Backend[]> = {
  gateway: ['store', 'upstreams', 'broker', 'files', 'engines'],
  worker: ['store', 'broker', 'files', 'engines'],
  dispatcher: ['store', 'broker'],
  // The controller checks plans against the price list of the engines.
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
