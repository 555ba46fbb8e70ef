import { Button } from './button.tsx'
import { Icon } from './icon.tsx'

type Props = { of: string; isFirst: boolean; next: string | null; show: (cursor: string | null) => void }

/** The way through a list that is read by cursors: to its newest page, and to the next older one. */
export function Pages({ of, isFirst, next, show }: Props) {
  if (isFirst && next === null) return null
  return (
    <nav class="row" aria-label={`Pages of ${of}`}>
      {!isFirst && <Button text="Newest" look="small" onClick={() => show(null)} />}
      {next !== null && (
        <Button look="small" onClick={() => show(next)}>
          Older <Icon name="chevron" size={16} />
        </Button>
      )}
    </nav>
  )
}
