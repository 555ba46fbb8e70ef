import type { Delivery, Status } from '../../api/tasks.ts'
import { Badge, type Tone } from '../../components/states.tsx'
import { label } from '../../format.ts'

const TONES: Record<Status | Delivery['status'], Tone> = {
  queued: 'neutral',
  processing: 'info',
  completed: 'ok',
  failed: 'danger',
  canceled: 'warn',
  pending: 'info',
  delivered: 'ok',
}

export function StatusBadge({ status }: { status: Status | Delivery['status'] }) {
  return <Badge tone={TONES[status]}>{label(status)}</Badge>
}
