/** The parts of the program that can run by themselves, and the doors that each opens: it can neither be held up nor misused through another. */
export const ROLES = ['gateway', 'worker', 'dispatcher', 'controller', 'all'] as const
export type Role = (typeof ROLES)[number]

/** In the order in which they are opened. */
export const DOORS = ['store', 'resources', 'upstreams', 'broker', 'files', 'engines'] as const
export type Door = (typeof DOORS)[number]

const NEEDED: Record<Role, readonly Door[]> = {
  gateway: ['store', 'upstreams', 'broker', 'files', 'engines'],
  worker: ['store', 'broker', 'files', 'engines'],
  dispatcher: ['store', 'broker'],
  // The service's price list is held against the limits of plans.
  controller: ['store', 'resources', 'engines'],
  all: DOORS,
}

/** Whether the role opens that door. */
export function needs(role: Role, door: Door): boolean {
  return NEEDED[role].includes(door)
}

/** Whether the role has the public listener. */
export function serves(role: Role): boolean {
  return needs(role, 'upstreams')
}
