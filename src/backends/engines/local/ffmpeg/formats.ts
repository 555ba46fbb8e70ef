/** Output formats of `trim` and `merge`: containers, encoders and their settings. */

export type FormatName = 'mp4' | 'webm' | 'm4a' | 'mp3' | 'wav' | 'flac'

export type Format = {
  contentType: string
  encoders: readonly string[]
  /** Arguments of the video encoder; null for an audio format. */
  video: readonly string[] | null
  audio: readonly string[]
  container: readonly string[]
  /** Codecs that players expect in this container: their streams can be copied. */
  copies: ReadonlySet<string>
  /** Whether the container stores a rotation. */
  rotates: boolean
  /** Whether it holds every sample as it was: then a merge keeps the sampling rate of its first source. */
  lossless: boolean
}

const AAC = ['-c:a', 'aac', '-b:a', '160k']
// The index goes to the front, so that playback can begin before the whole file has arrived.
const FASTSTART = ['-movflags', '+faststart']
const X264 = ['-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20', '-pix_fmt', 'yuv420p']
const VP9 = [
  '-c:v',
  'libvpx-vp9',
  '-deadline',
  'realtime',
  '-cpu-used',
  '6',
  '-row-mt',
  '1',
  '-crf',
  '31',
  '-b:v',
  '0',
  '-pix_fmt',
  'yuv420p',
]

export const FORMATS: Readonly<Record<FormatName, Format>> = {
  mp4: {
    contentType: 'video/mp4',
    encoders: ['libx264', 'aac'],
    video: X264,
    audio: AAC,
    container: ['-f', 'mp4', ...FASTSTART],
    copies: new Set(['h264', 'hevc', 'av1', 'vp9', 'aac', 'mp3', 'opus']),
    rotates: true,
    lossless: false,
  },
  webm: {
    contentType: 'video/webm',
    encoders: ['libvpx-vp9', 'libopus'],
    video: VP9,
    audio: ['-c:a', 'libopus', '-b:a', '128k'],
    container: ['-f', 'webm'],
    copies: new Set(['vp8', 'vp9', 'av1', 'opus', 'vorbis']),
    rotates: false,
    lossless: false,
  },
  m4a: audioFormat('audio/mp4', 'aac', AAC, ['-f', 'ipod', ...FASTSTART], 'aac'),
  mp3: audioFormat('audio/mpeg', 'libmp3lame', ['-c:a', 'libmp3lame', '-b:a', '192k'], ['-f', 'mp3'], 'mp3'),
  wav: wavOf('pcm_s16le'),
  // Copied packets would keep the length in the header of their source.
  flac: { ...audioFormat('audio/flac', 'flac', ['-c:a', 'flac'], ['-f', 'flac']), lossless: true },
}

function audioFormat(contentType: string, encoder: string, audio: string[], container: string[], ...copies: string[]): Format {
  return { contentType, encoders: [encoder], video: null, audio, container, copies: new Set(copies), rotates: false, lossless: false }
}

/** Samples of WAV files, by ffprobe's names: 16 bits where a source has others. */
const PCM = ['pcm_u8', 'pcm_s24le', 'pcm_s32le', 'pcm_f32le', 'pcm_f64le']

function wavOf(codec: string): Format {
  return { ...audioFormat('audio/wav', codec, ['-c:a', codec], ['-f', 'wav'], codec), lossless: true }
}

/**
 * A format by its name, for sources whose first sound has this codec: a WAV keeps the bits of its samples. Of sources without video, mp4
 * becomes m4a, and webm a WebM of audio alone. Throws when there is no such format: it was checked at creation.
 */
export function formatOf(name: string, hasVideo: boolean, codec: string | undefined): Format {
  if (name === 'wav' && codec !== undefined && PCM.includes(codec)) return wavOf(codec)
  const format = Object.entries(FORMATS).find(([known]) => known === name)?.[1]
  if (!format) throw new Error(`no format ${name}`)
  if (hasVideo || !format.video) return format
  return name === 'mp4' ? FORMATS.m4a : { ...format, contentType: format.contentType.replace('video', 'audio'), video: null }
}
