/** Bugs in what becomes of the job that a run has begun at a provider. */
import type { Bug } from './bugs.ts'

export const JOB_BUGS: Omit<Bug, 'scenario'>[] = [
  {
    name: 'a task that is handed back forgets its job',
    file: 'src/tasks/run-outcome.ts', within: 60,
    from: 'return requeue(context, task, context.clock(), { attempts: Math.max(0, task.attempts - 1) }',
    to: 'return requeue(context, task, context.clock(), { attempts: Math.max(0, task.attempts - 1), job: null }',
  },
  {
    name: 'the next attempt resumes the job that failed',
    file: 'src/tasks/run-outcome.ts', within: 60,
    from: '{ attempts: task.attempts, ...(!keepsJob && { job: null, jobEngine: null }) }',
    to: '{ attempts: task.attempts }',
  },
  {
    name: 'a task that waits with a job is canceled for nothing',
    file: 'src/tasks/run-outcome.ts', within: 120,
    from: "task.job === null ? { outcome: 'canceled' } : begun",
    to: "{ outcome: 'canceled' }",
  },
  {
    name: 'a lost lease loses the job',
    file: 'src/tasks/recovery-sweeps.ts', within: 60,
    from: 'lostLeases, attempts: Math.max(0, task.attempts - 1),',
    to: 'lostLeases, job: null, attempts: Math.max(0, task.attempts - 1),',
  },
  {
    name: 'a job is remembered by a run that lost its task',
    file: 'src/tasks/run-outcome.ts', within: 200,
    from: "{ from: ['processing'], epoch: task.epoch }, 'processing', facts)",
    to: "{ from: ['processing'] }, 'processing', facts)",
  },
  {
    name: 'a run begins without the job of the one before',
    file: 'src/tasks/claim-tasks.ts', within: 60,
    from: 'const facts = { epoch,',
    to: 'const facts = { job: null, epoch,',
  },
]
