/** The two sides that every flow runs on: one process with everything embedded, and a process for each role over servers that they share. */
import type { Test } from 'tap'
import type { Role } from '../../src/config/config.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { openSite } from './deployment.ts'
import { start, type Program } from './program.ts'

/** Starts a program in a folder; one that is started there again meets what was there. `roles` are those that a test needs where they are apart. */
export type Start = (options: { folder: string; env?: Record<string, string>; roles?: readonly Role[] }) => Promise<Program>

export type Side = {
  name: 'embedded' | 'distributed'
  /** How programs start on this side, as long as `t` runs; null after having skipped, where its servers are not installed. */
  open(t: Test): Promise<Start | null>
}

/** Several times what two sides with all their processes take on two quiet cores: only what hangs is to end so. */
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
