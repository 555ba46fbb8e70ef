/** Chooses the section of a video or sound that stays: by two handles, or by where it plays now. */
import { useRef, useState } from 'preact/hooks'
import type { Source } from './media-api.ts'
import type { Edit } from './operation-body.ts'
import { familyOf } from './labels.ts'

const STEP = 0.1
const SHORTEST = 0.1

type Props = { edit: Edit; set: (change: Partial<Edit>) => void; source: Source }

export function TrimHandles({ edit, set, source }: Props) {
  const player = useRef<HTMLVideoElement & HTMLAudioElement>(null)
  const [known, setKnown] = useState((source.durationMs ?? 0) / 1000)
  const length = known > 0 ? known : 1
  const end = edit.end ?? length
  const seek = (seconds: number) => {
    if (player.current) player.current.currentTime = seconds
  }
  function setStart(seconds: number): void {
    const start = round(Math.min(Math.max(0, seconds), end - SHORTEST))
    set({ start })
    seek(start)
  }
  function setEnd(seconds: number): void {
    const next = round(Math.max(Math.min(length, seconds), edit.start + SHORTEST))
    set({ end: next >= length ? null : next })
    seek(next)
  }
  const media = {
    ref: player,
    src: source.url,
    controls: true,
    preload: 'metadata' as const,
    'aria-label': 'Source to trim',
    onLoadedMetadata: () => Number.isFinite(player.current?.duration) && setKnown(player.current?.duration ?? 0),
  }
  return (
    <div class="field trim">
      <span class="field-label">Section to keep</span>
      {familyOf(source.type) === 'video' ? <video {...media} playsInline muted /> : <audio {...media} />}
      <div class="trim-track">
        <span
          class="trim-kept"
          style={{ left: `${(edit.start / length) * 100}%`, right: `${100 - (end / length) * 100}%` }}
          aria-hidden="true"
        />
        <input
          type="range"
          min={0}
          max={length}
          step={STEP}
          value={edit.start}
          aria-label="Start"
          aria-valuetext={`${edit.start.toFixed(1)} seconds`}
          onInput={(event) => setStart(Number(event.currentTarget.value))}
        />
        <input
          type="range"
          min={0}
          max={length}
          step={STEP}
          value={end}
          aria-label="End"
          aria-valuetext={`${end.toFixed(1)} seconds`}
          onInput={(event) => setEnd(Number(event.currentTarget.value))}
        />
      </div>
      <div class="row">
        <button type="button" class="button small" onClick={() => setStart(player.current?.currentTime ?? 0)}>
          Start here
        </button>
        <button type="button" class="button small" onClick={() => setEnd(player.current?.currentTime ?? length)}>
          End here
        </button>
        <output class="muted">
          {edit.start.toFixed(1)} s to {end.toFixed(1)} s: {(end - edit.start).toFixed(1)} s stay
        </output>
      </div>
    </div>
  )
}

const round = (seconds: number): number => Math.round(seconds * 10) / 10
