import { Type } from 'typebox'
import { defineOperation, fault, filmFormat, media_url, millis } from './operation.ts'

/** A day: longer than any route allows, so that times stay exact. */
const SECONDS_MAX = 86_400

const time = (minimum: number, description: string) => Type.Number({ minimum, maximum: SECONDS_MAX, description })

type Section = {
  startMs: number
  /** Measured from the beginning of the source; null: to its end. */
  endMs: number | null
  mode: 'accurate' | 'fast'
}

/** A fast result begins with the key frame before its section. Usual encoders set one every ten seconds or more often. */
const KEY_FRAME_MS = 10_000

const sectionMs = ({ startMs, endMs }: Section, sourceMs: number): number => Math.max(0, Math.min(endMs ?? Infinity, sourceMs) - startMs)

export const trim = defineOperation({
  title: 'Trim a video or a recording',
  description:
    'Keeps one section of an existing video or audio file, from start_time to end_time or for a duration, and cuts off the rest.',
  reads: 'video',
  route: { engine: 'local', price: { amount: '0.005', per: 'Second' }, max: { megapixels: 8.3, seconds: 600 } },
  fields: {
    media_url,
    start_time: time(0, 'Where the section begins, in seconds from the beginning of the source.'),
    end_time: Type.Optional(time(0.001, 'Where it ends, in seconds from the beginning of the source; the end of the source by default.')),
    duration: Type.Optional(time(0.001, 'Length of the section in seconds, in place of end_time.')),
    mode: Type.Optional(
      Type.Enum(['accurate', 'fast'], {
        description: 'accurate (default) cuts at the exact time; fast at the key frame up to 10 s before it.',
      }),
    ),
    output_format: filmFormat,
  },
  faults: ({ start_time = 0, end_time, duration }) => [
    ...(end_time !== undefined && duration !== undefined
      ? [fault('duration', 'not_allowed', 'cannot be given together with end_time')]
      : []),
    ...(end_time !== undefined && millis(end_time) <= millis(start_time) ? [fault('end_time', 'minimum', 'must be above start_time')] : []),
  ],
  defaults: ({ mode = 'accurate' }) => ({ mode }),
  parameters({ start_time = 0, end_time, duration, mode }): Section {
    const startMs = millis(start_time)
    const lastMs = duration === undefined ? null : startMs + millis(duration)
    return { startMs, endMs: end_time === undefined ? lastMs : millis(end_time), mode }
  },
  durationMs: (section, sourceMs) => sectionMs(section, sourceMs) + (section.mode === 'fast' ? Math.min(section.startMs, KEY_FRAME_MS) : 0),
  readMs: sectionMs,
})
