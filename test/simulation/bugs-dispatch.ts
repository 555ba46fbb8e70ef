/** Bugs about coding requests that go to their upstream before their admission is stored: one of three seeds has a process that alone writes the store. */
import type { Bug } from './bugs.ts'

type Listed = Omit<Bug, 'scenario'>

const COMMAND = 'src/backends/store/queued-command.ts'
const COMMIT = 'src/backends/store/group-commit.ts'
const DECIDED = 'decided: () => outcome(give, reject)'

export const DISPATCH_BUGS: Listed[] = [
  {
    name: 'an admission is durable before it is written',
    file: COMMAND, within: 60,
    from: 'decided(): void {}',
    to: 'decided(): void { this.#write.stored() }',
  },
  {
    name: 'a refusal is durable before what it rests on is written',
    file: COMMAND, within: 600,
    from: DECIDED,
    to: `decided: () => outcome((answer) => (answer.outcome === 'admitted' ? give(answer) : written(answer)), reject)`,
  },
  {
    name: 'requests are sent ahead of their admission after a write that failed',
    file: 'src/backends/store/write-mode.ts', within: 600,
    from: `isQuick = outcome === 'replaced' && `,
    to: 'isQuick = ',
  },
  {
    name: 'the record in memory outlives a write that failed',
    file: COMMIT, within: 600,
    from: '  queue.stored = undefined\n  queue.ahead = undefined\n',
    to: '',
  },
  {
    name: 'a command that is called during a write is applied to what is being written',
    file: COMMIT, within: 600,
    from: 'isSole ? current(queue, shared)',
    to: 'isSole ? current(queue, shared) && new CurrentRecord(id, queue.stored ?? null)',
  },
  {
    name: 'a process that starts alone keeps what the last one reserved',
    file: 'plugins/metering/orphaned-reservations.ts', within: 600,
    from: 'await expire(() => true, now)',
    to: 'await expire(() => false, now)',
  },
  {
    name: 'a settlement that failed is not made again',
    file: 'plugins/metering/settlement.ts', within: 60,
    from: 'if (this.#shared.isStopped) break',
    to: 'break',
  },
  {
    name: 'metering forgets an admission without an answer',
    file: 'plugins/metering/admission.ts', within: 200,
    from: 'if (error instanceof Unavailable) unknown.add(subscription, clock())',
    to: '',
  },
  {
    name: 'metering answers a refusal before what it rests on is stored',
    file: 'plugins/metering/admission.ts', within: 600,
    from: 'await durable\n',
    to: '',
  },
]
