/** `data` of the events with which a task ends, from the stored task (specification, section 6.2). */
import { durationSeconds, publicError, type Task, type TaskResult } from '../domain/task.ts'
import { completedData, failedData } from '../domain/webhooks.ts'
import { publicResult } from './public-record.ts'

/** `data` of `task.completed` or `task.failed`; null for a canceled task, and for one without an outcome. */
export function finalEventData(task: Task, link: (result: TaskResult) => string): Record<string, unknown> | null {
  const { outcome } = task
  const at = task.endedAt ?? task.createdAt
  const about = { taskId: task.id, estimatedMicro: task.estimatedCost, createdAt: task.createdAt }
  if (outcome?.outcome === 'completed') {
    const result = publicResult(outcome.result, link)
    return completedData({
      ...about,
      result,
      actualMicro: task.actualCost ?? 0,
      durationSeconds: durationSeconds(task) ?? 0,
      completedAt: at,
    })
  }
  if (outcome?.outcome !== 'failed') return null
  return failedData({ ...about, error: publicError(outcome), refundMicro: task.refundAmount ?? 0, attempts: task.attempts, failedAt: at })
}
