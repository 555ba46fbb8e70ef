/** Chooses the section of a video or sound that stays: by two handles, or by where it plays now. */
import { useRef, useState } from 'preact/hooks'
import type { Source } from './media-api.ts'
import type { Edit } from './operation-body.ts'
import { familyOf } from './labels.ts'
import { Button } from '../components/button.tsx'

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
  const handles = [
    { name: 'Start', at: edit.start, move: setStart },
    { name: 'End', at: end, move: setEnd },
  ]
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
        {handles.map(({ name, at, move }) => (
          <input
            key={name}
            type="range"
            min={0}
            max={length}
            step={STEP}
            value={at}
            aria-label={name}
            aria-valuetext={`${at.toFixed(1)} seconds`}
            onInput={(event) => move(Number(event.currentTarget.value))}
          />
        ))}
      </div>
      <div class="row">
        <Button text="Start here" look="small" onClick={() => setStart(player.current?.currentTime ?? 0)} />
        <Button text="End here" look="small" onClick={() => setEnd(player.current?.currentTime ?? length)} />
        <output class="muted">
          {edit.start.toFixed(1)} s to {end.toFixed(1)} s: {(end - edit.start).toFixed(1)} s stay
        </output>
      </div>
    </div>
  )
}

const round = (seconds: number): number => Math.round(seconds * 10) / 10
