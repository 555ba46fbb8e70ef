/**
 * Filter graphs of FFmpeg (ffmpeg-filters(1)) that normalise a source: one frame size, a constant rate, one colour space, and audio of
 * exactly the same length.
 */
import { perSecond, type Source, type VideoStream } from './probe.ts'

/** The video that all sources of a result are converted to. Width and height are even, as 4:2:0 subsampling needs. */
export type Target = { width: number; height: number; rate: string; matrix: string; fit: 'contain' | 'cover' }

/** A section of a source: it begins at `from` seconds, is read from `seek` seconds on, and lasts `seconds`, which is `frames` frames where there is video. */
export type Section = { from: number; seek: number; seconds: number; frames: number }

/** YCbCr matrices: from ffprobe's names to those of the scale filter, and back to tags. */
const MATRICES: Record<string, string> = {
  bt709: 'bt709',
  smpte170m: 'bt601',
  bt470bg: 'bt601',
  fcc: 'fcc',
  smpte240m: 'smpte240m',
  bt2020nc: 'bt2020',
  bt2020c: 'bt2020',
}
const TAGS: Record<string, string> = { bt709: 'bt709', bt601: 'smpte170m', fcc: 'fcc', smpte240m: 'smpte240m', bt2020: 'bt2020nc' }
/** Transfer functions of high dynamic range, ITU-R BT.2100. */
const HDR = new Set(['smpte2084', 'arib-std-b67'])
const tonemap = (transfer: string): string =>
  `zscale=tin=${transfer}:pin=bt2020:min=bt2020nc:t=linear:npl=100,format=gbrpf32le,zscale=p=bt709,tonemap=hable:desat=0,zscale=t=bt709:m=bt709:r=tv`

/** Decoders may output slightly less than the packets' times announce. */
const PADDING_SECONDS = 0.5
/** Gaps in the timestamps of audio become silence; those below 40 ms are rounding of the container. */
const FILL_GAPS = 'aresample=async=1:first_pts=0:min_hard_comp=0.04'
/** Frames by which decoding may run ahead of display, ITU-T H.264 (max_dec_frame_buffering). */
const REORDERED_FRAMES_MAX = 16

const even = (pixels: number): number => Math.max(2, Math.floor(pixels / 2) * 2)

/** Streams that do not name their matrix are interpreted by their size, as players do. */
const matrixOf = ({ matrix, transfer, height }: VideoStream): string =>
  HDR.has(transfer) ? 'bt709' : (MATRICES[matrix] ?? (height >= 720 ? 'bt709' : 'bt601'))

/** The target that keeps a source's own size, rate and colours. */
export function targetOf(video: VideoStream, fit: Target['fit']): Target {
  return { width: even(video.width), height: even(video.height), rate: video.rate, matrix: matrixOf(video), fit }
}

/** A section of so many seconds, rounded to whole frames, at least one, where there is a target. */
export function sectionOf(source: Source, from: number, seconds: number, target: Target | null): Section {
  const seek = seekOf(source, from)
  if (!target) return { from, seek, seconds, frames: 0 }
  const frames = Math.max(1, Math.round(seconds * perSecond(target.rate)))
  return { from, seek, seconds: frames / perSecond(target.rate), frames }
}

/** Demuxers seek by decoding time, which precedes presentation time, and audio decoders need some packets before the first sample. */
function seekOf({ container, video }: Source, from: number): number {
  if (!container.seekable) return 0
  return Math.max(0, video ? frameTime(video, from) - REORDERED_FRAMES_MAX / perSecond(video.rate) - 1 : from - 1)
}

/** A time with a frame: at most that of the last one, which stays on display while audio continues. */
const frameTime = ({ end, rate }: VideoStream, seconds: number): number => Math.min(seconds, end - 1 / perSecond(rate))

/** Letterboxes or crops. Cropping comes before scaling, so that an extreme aspect ratio makes no huge intermediate frame. */
function fit({ width, height }: VideoStream, target: Target): string[] {
  const wider = width / height > target.width / target.height
  if (target.fit === 'cover') {
    const [cropWidth, cropHeight] = wider
      ? [(height * target.width) / target.height, height]
      : [width, (width * target.height) / target.width]
    const crop = `crop=${Math.max(1, Math.round(cropWidth))}:${Math.max(1, Math.round(cropHeight))}:exact=1`
    return [`scale=${width}:${height}`, crop, `scale=${target.width}:${target.height}`]
  }
  const [across, down] = wider
    ? [target.width, even((height * target.width) / width)]
    : [even((width * target.height) / height), target.height]
  const filled = across === target.width && down === target.height
  return [`scale=${across}:${down}`, ...(filled ? [] : [`pad=${target.width}:${target.height}:(ow-iw)/2:(oh-ih)/2`])]
}

/** Converts to the target's matrix in limited range, and tags the frames, so that no player has to guess. */
function convertColours(video: VideoStream, target: Target): string[] {
  const matrix = matrixOf(video)
  const options = [
    ...(video.matrix === 'gbr' ? [`out_color_matrix=${target.matrix}`] : []),
    ...(video.matrix !== 'gbr' && matrix !== target.matrix ? [`in_color_matrix=${matrix}:out_color_matrix=${target.matrix}`] : []),
    ...(video.fullRange ? ['in_range=pc:out_range=tv'] : []),
  ]
  const scale = options.length > 0 ? [`scale=${options.join(':')}`] : []
  return [
    ...(HDR.has(video.transfer) ? [tonemap(video.transfer)] : []),
    ...scale,
    'format=yuv420p',
    `setparams=colorspace=${TAGS[target.matrix]}:range=tv`,
  ]
}

/**
 * The video of a section, without an output label. It begins with the frame on display at that time, even if that frame began earlier. The
 * last frame is repeated while audio continues, but not in place of frames that cannot be decoded: a caller must not pay for a still.
 */
export function videoFilters(input: number, { video, durationMs }: Source, section: Section, target: Target): string {
  if (!video) throw new Error('no video stream')
  const filters = [
    ...(video.interlaced ? ['bwdif=deint=interlaced'] : []),
    ...fit(video, target),
    ...convertColours(video, target),
    'setsar=1',
    `fps=${target.rate}:start_time=${frameTime(video, section.from) - section.seek}`,
    `tpad=stop_mode=clone:stop_duration=${Math.max(0, durationMs / 1000 - video.end) + PADDING_SECONDS}`,
    `trim=end_frame=${section.frames}`,
    'setpts=PTS-STARTPTS',
    // concat and xfade need the same time base of all inputs.
    'settb=AVTB',
  ]
  return `[${input}:${video.index}]${filters.join(',')}`
}

/**
 * The audio of a section, without an output label: silence where the source has none. The whole stream when `section` is null. Stereo at
 * `sampleRate`; when that is null, the source's own channels and rate.
 */
export function audioFilters(input: number, { audio }: Source, section: Section | null, sampleRate: number | null): string {
  if (!audio) return `anullsrc=r=${sampleRate}:cl=stereo,atrim=end=${section?.seconds}`
  const format = sampleRate ? [`aformat=sample_rates=${sampleRate}:channel_layouts=stereo`] : []
  const cut = section
    ? [`asetpts=PTS-${section.from - section.seek}/TB`, 'atrim=start=0', FILL_GAPS, 'apad', `atrim=end=${section.seconds}`]
    : [FILL_GAPS]
  return `[${input}:${audio.index}]${[...cut, ...format].join(',')}`
}
