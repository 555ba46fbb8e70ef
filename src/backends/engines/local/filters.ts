/** Filter graphs of FFmpeg (ffmpeg-filters(1)): every input becomes frames of one size and rate, and sound of exactly their length. */
import { perSecond, type Film, type Picture } from './probe.ts'

/** What all inputs of a result are brought to. Width and height are even, as 4:2:0 pictures need. */
export type Screen = { width: number; height: number; rate: string; matrix: string; fit: 'contain' | 'cover' }

/** A part of a film from `from` seconds on, as it is read from `seek` seconds on. It is `frames` long; where there is sound alone, `seconds`. */
export type Part = { from: number; seek: number; frames: number; seconds: number }

/** YCbCr matrices as the scale filter names them. One that a stream does not name is guessed by its size, as players do. */
const MATRICES: Record<string, string> = { bt709: 'bt709', smpte170m: 'bt601', bt470bg: 'bt601', fcc: 'fcc', smpte240m: 'smpte240m', bt2020nc: 'bt2020', bt2020c: 'bt2020' }
/** And as the tag of a stream names them. */
const TAGS: Record<string, string> = { bt709: 'bt709', bt601: 'smpte170m', fcc: 'fcc', smpte240m: 'smpte240m', bt2020: 'bt2020nc' }
const HIGH_DYNAMIC_RANGE = new Set(['smpte2084', 'arib-std-b67'])
/** From the transfer function of a picture to that of BT.709, by way of linear light. */
const tonemap = (transfer: string): string =>
  `zscale=tin=${transfer}:pin=bt2020:min=bt2020nc:t=linear:npl=100,format=gbrpf32le,zscale=p=bt709,tonemap=hable:desat=0,zscale=t=bt709:m=bt709:r=tv`

/** A last frame may end a little before the packets' times say so. */
const HELD_SECONDS = 0.5

/** Gaps in the times of sound that are longer than an ear forgives beside pictures become silence; shorter ones are the rounding of containers. */
const GAPLESS = 'aresample=async=1:first_pts=0:min_hard_comp=0.04'

const even = (pixels: number): number => Math.max(2, Math.round(pixels / 2) * 2)
const matrixOf = ({ matrix, transfer, height }: Picture): string => (HIGH_DYNAMIC_RANGE.has(transfer) ? 'bt709' : (MATRICES[matrix] ?? (height >= 720 ? 'bt709' : 'bt601')))

/** The screen of a film, as its own result has it. */
export function screenOf(picture: Picture, fit: Screen['fit']): Screen {
  const [width, height] = [even(picture.width), even(picture.height)]
  return { width, height, rate: picture.rate, matrix: matrixOf(picture), fit }
}

/** A part of so many seconds, in whole frames of the screen where there is one; at least one. */
export function partOf(film: Film, from: number, seconds: number, screen: Screen | null): Part {
  const seek = seekOf(film, from)
  if (!screen) return { from, seek, frames: 0, seconds }
  const frames = Math.max(1, Math.round(seconds * perSecond(screen.rate)))
  return { from, seek, frames, seconds: frames / perSecond(screen.rate) }
}

/** Decoded frames are shown up to 16 frames after they are read (ITU-T H.264, max_dec_frame_buffering), and demuxers seek by the time of reading; decoders of sound want a little before. */
function seekOf({ container, picture }: Film, from: number): number {
  if (!container.indexed) return 0
  const delay = picture ? 16 / perSecond(picture.rate) : 0
  return Math.max(0, (picture ? shownAt(picture, from) : from) - delay - 1)
}

/** A time at which there is a picture: after the last has begun, that is shown still. */
const shownAt = ({ end, rate }: Picture, seconds: number): number => Math.min(seconds, end - 1 / perSecond(rate))

/** Into the screen: with bars beside it, or cut to fill it. It is cut before it is enlarged, so that no picture is much larger than the screen. */
function fitted({ width, height }: Picture, screen: Screen): string[] {
  const wider = width / height > screen.width / screen.height
  if (screen.fit === 'cover') {
    const [across, down] = wider ? [(height * screen.width) / screen.height, height] : [width, (width * screen.height) / screen.width]
    const crop = `crop=${Math.max(1, Math.round(across))}:${Math.max(1, Math.round(down))}:exact=1`
    return [`scale=${width}:${height}`, crop, `scale=${screen.width}:${screen.height}`]
  }
  const [across, down] = wider ? [screen.width, even((height * screen.width) / width)] : [even((width * screen.height) / height), screen.height]
  const whole = across === screen.width && down === screen.height
  return [`scale=${across}:${down}`, ...(whole ? [] : [`pad=${screen.width}:${screen.height}:(ow-iw)/2:(oh-ih)/2`])]
}

/** Into the matrix of the screen and the limited range that players expect, and tagged so that no player has to guess. */
function coloured(picture: Picture, screen: Screen): string[] {
  const matrix = matrixOf(picture)
  const options = [
    ...(picture.matrix === 'gbr' ? [`out_color_matrix=${screen.matrix}`] : []),
    ...(picture.matrix !== 'gbr' && matrix !== screen.matrix ? [`in_color_matrix=${matrix}:out_color_matrix=${screen.matrix}`] : []),
    ...(picture.fullRange ? ['in_range=pc:out_range=tv'] : []),
  ]
  const converted = options.length > 0 ? [`scale=${options.join(':')}`] : []
  return [...converted, 'format=yuv420p', `setparams=colorspace=${TAGS[screen.matrix]}:range=tv`]
}

/**
 * The pictures of a part. The frame that is shown at its beginning, though it began before, comes first; the last is held while only sound goes on. Frames that
 * cannot be decoded shorten the result: it must not end in a still that is charged for.
 */
export function pictures(input: number, { picture, durationMs }: Film, part: Part, screen: Screen, tonemaps: boolean): string {
  if (!picture) throw new Error('a film without pictures')
  const { index, interlaced, transfer, end } = picture
  const held = Math.max(0, durationMs / 1000 - end) + HELD_SECONDS
  const filters = [
    ...(interlaced ? ['bwdif=deint=interlaced'] : []),
    ...fitted(picture, screen),
    ...(tonemaps && HIGH_DYNAMIC_RANGE.has(transfer) ? [tonemap(transfer)] : []),
    ...coloured(picture, screen),
    'setsar=1',
    `fps=${screen.rate}:start_time=${shownAt(picture, part.from) - part.seek}`,
    `tpad=stop_mode=clone:stop_duration=${held}`,
    `trim=end_frame=${part.frames}`,
    'setpts=PTS-STARTPTS',
    // Filters that join parts want one time base of all of them.
    'settb=AVTB',
  ]
  return `[${input}:${index}]${filters.join(',')}`
}

/**
 * The sound of an input: of a part from its very beginning to its end, or all of it as it is when `part` is null. Silent where there is none. At `sampleRate` and in
 * stereo, or as the input has it when that is null.
 */
export function sound(input: number, film: Film, part: Part | null, sampleRate: number | null): string {
  if (!film.sound) return `anullsrc=r=${sampleRate}:cl=stereo,atrim=end=${part?.seconds}`
  const format = sampleRate ? [`aformat=sample_rates=${sampleRate}:channel_layouts=stereo`] : []
  const cut = part ? [`asetpts=PTS-${part.from - part.seek}/TB`, 'atrim=start=0', GAPLESS, 'apad', `atrim=end=${part.seconds}`] : [GAPLESS]
  return `[${input}:${film.sound.index}]${[...cut, ...format].join(',')}`
}
