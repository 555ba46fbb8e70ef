import { useState } from 'preact/hooks'
import { Segmented } from '../components/field.tsx'

const VIEWS = [
  { value: 'both', name: 'Slider' },
  { value: 'after', name: 'Result' },
]

/** A picture before and after: a slider that pointer and keyboard move. */
type Props = { before: string; after: string; name: string; isTransparent: boolean }

export function Compare({ before, after, name, isTransparent }: Props) {
  const [share, setShare] = useState(50)
  const [view, setView] = useState('both')
  const [isGone, setGone] = useState(false)
  const isBoth = view === 'both' && !isGone
  return (
    <figure class="compare">
      <div class={isTransparent ? 'compare-frame checkered' : 'compare-frame'}>
        <img
          class="compare-after"
          src={after}
          alt={`${name}, after`}
          decoding="async"
          style={{ clipPath: isBoth ? `inset(0 0 0 ${share}%)` : 'none' }}
        />
        {isBoth && (
          <>
            <img
              class="compare-before"
              src={before}
              alt={`${name}, before`}
              decoding="async"
              style={{ clipPath: `inset(0 ${100 - share}% 0 0)` }}
              onError={() => setGone(true)}
            />
            <span class="compare-line" style={{ left: `${share}%` }} aria-hidden="true" />
            <input
              class="compare-range"
              type="range"
              min={0}
              max={100}
              step={1}
              value={share}
              aria-label="Before and after"
              aria-valuetext={`${share}% before`}
              onInput={(event) => setShare(Number(event.currentTarget.value))}
            />
          </>
        )}
      </div>
      {!isGone && (
        <figcaption>
          <Segmented label="View" value={view} choices={VIEWS} choose={setView} />
        </figcaption>
      )}
    </figure>
  )
}
