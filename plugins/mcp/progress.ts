/** Progress notifications of a task that a client waits for. */
import type { Task } from '../../src/domain/task.ts'
import { publicStatus } from '../../src/tasks/public-record.ts'
import type { CallContext } from './request-context.ts'

/** Sends progress notifications to a client that gave a progress token, whenever the progress rises. */
export function progressReporter({ mcpReq }: CallContext): (task: Task) => void {
  const progressToken = mcpReq._meta?.progressToken
  let reported = -1
  return (task) => {
    const progress = task.state === 'completed' ? 100 : Math.min(task.progress, 99)
    if (progressToken === undefined || progress <= reported) return
    reported = progress
    // The client may have left.
    void mcpReq
      .notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100, message: publicStatus(task) } })
      .catch(() => {})
  }
}
