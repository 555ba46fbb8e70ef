/** The two deployments of every flow: one process with everything embedded, and one process per role over shared servers. */
import type { Test } from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { openSite } from './deployment.ts'
import { start, type Program } from './program.ts'

/** Starts a program in a folder; a restart there finds its data. `roles` are those that a test needs on the distributed side. */
export type Start = (options: { folder: string; env?: Record<string, string>; roles?: readonly Role[] }) => Promise<Program>

export type Side = {
  name: 'embedded' | 'distributed'
  /** Opens this side for the duration of `t`; null, with the test skipped, where its servers are not installed. */
  open(t: Test): Promise<Start | null>
}

/** Several times the duration of both sides on two idle cores: only a hanging test exceeds it. */
export const SIDE_TIMEOUT_MS = 1_800_000

export const SIDES: readonly Side[] = [
  { name: 'embedded', open: async () => ({ folder, env = {} }) => start({ folder, env }) },
  {
    name: 'distributed',
    async open(t) {
      const [store, brokers] = [await mongodb(t), await kafka(t)]
      if (store === null || brokers === null) return null
      const site = openSite({ mongodb: store, brokers })
      t.teardown(() => site.close())
      return site.start
    },
  },
]
