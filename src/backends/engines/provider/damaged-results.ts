/**
 * Whether a result is whole. Pictures are decoded where sharp is installed. Everything else by its container: a video's boxes, the length that a sound's header tells
 * and the frames of an MP3, which show what was cut off and need no decoder.
 */
import { viewOf, textAt } from '../../../domain/media-info/header.ts'
import { lastFlacFrame, followMp3 } from '../../../domain/media-info/audio-frames.ts'
import { firstMp3Frame, flacStream, tagBytes, wavData } from '../../../domain/media-info/audio-headers.ts'
import { PREFIX_BYTES } from '../../../domain/media-info.ts'
import type { Content } from './content.ts'
import { loadSharp, type LoadSharp } from './mask.ts'

/** What is wrong with the bytes, for the operator, or null. The content is of this type by its first bytes. */
export async function defectOf(content: Content, contentType: string, load: LoadSharp = loadSharp): Promise<string | null> {
  if (contentType.startsWith('image/')) return (await endOfPicture(content, contentType)) ?? undecodable(content, load)
  if (contentType === 'video/mp4' || contentType === 'audio/mp4') return boxesOf(content)
  if (contentType === 'audio/wav') return dataOf(content)
  if (contentType === 'audio/flac') return samplesOf(content)
  return contentType === 'audio/mpeg' ? framesOf(content) : null
}

const TAIL_BYTES = 64 * 1024
const tailOf = (content: Content): Promise<Uint8Array> => content.read(Math.max(0, content.bytes - TAIL_BYTES), TAIL_BYTES)

const ENDS: Readonly<Record<string, Uint8Array>> = {
  // The chunk IEND with its checksum (PNG, 11.2.5), and the marker EOI (ITU-T T.81, B.1.1.3). Some writers append more.
  'image/png': Buffer.from('IEND\xae\x42\x60\x82', 'latin1'),
  'image/jpeg': Buffer.of(0xff, 0xd9),
}

async function endOfPicture(content: Content, contentType: string): Promise<string | null> {
  if (contentType === 'image/webp') {
    const size = viewOf(await content.read(0, 8)).getUint32(4, true) + 8
    return size > content.bytes ? `it ends before its ${size} bytes` : null
  }
  const end = ENDS[contentType]
  return end && !Buffer.from(await tailOf(content)).includes(end) ? 'its end is missing' : null
}

/** Decodes down to the last row, without keeping the others. */
async function undecodable(content: Content, load: LoadSharp): Promise<string | null> {
  const sharp = await load()
  if (!sharp) return null
  try {
    const bytes = await content.read(0, content.bytes)
    const options = { sequentialRead: true, failOn: 'error' } as const
    const { width, height } = await sharp(bytes, options).metadata()
    await sharp(bytes, options)
      .extract({ left: 0, top: height - 1, width, height: 1 })
      .raw()
      .toBuffer()
    return null
  } catch (error) {
    return `it cannot be decoded: ${error instanceof Error ? error.message : 'unknown'}`
  }
}

/** Boxes of a video beyond this number are not followed: fragments of streams may be many. */
const BOXES = 100_000

/** The boxes on the first level of MP4 (ISO/IEC 14496-12, 4.2): each must end within the file, and one must be the index. */
async function boxesOf(content: Content): Promise<string | null> {
  let hasIndex = false
  let at = 0
  for (let count = 0; at + 8 <= content.bytes && count < BOXES; count++) {
    const head = await content.read(at, 16)
    const size32 = viewOf(head).getUint32(0)
    const type = textAt(head, 4, 4)
    hasIndex ||= type === 'moov'
    const size = size32 === 0 ? content.bytes - at : size32 === 1 && head.length === 16 ? Number(viewOf(head).getBigUint64(8)) : size32
    if (size < 8 || at + size > content.bytes) return `its box ${JSON.stringify(type)} of ${size} bytes begins at ${at}`
    at += size
  }
  return hasIndex ? null : 'it has no index'
}

async function dataOf(content: Content): Promise<string | null> {
  const data = wavData(await content.read(0, PREFIX_BYTES))
  if (data === null) return 'it has no samples'
  return data.bytes !== null && data.at + data.bytes > content.bytes ? `its samples are ${data.bytes} bytes` : null
}

async function samplesOf(content: Content): Promise<string | null> {
  const { blockSize, samples } = flacStream(await content.read(0, 26))
  const last = lastFlacFrame(await tailOf(content), blockSize)
  // A frame may be larger than the tail.
  if (last === null) return null
  if (!last.isWhole) return 'its last frame is not whole'
  // A stream does not know its length.
  return samples === 0 || last.nextSample >= samples ? null : `it ends at sample ${last.nextSample} of ${samples}`
}

async function framesOf(content: Content): Promise<string | null> {
  let at = tagBytes(await content.read(0, 10))
  at += firstMp3Frame(await content.read(at, 4096))?.at ?? 0
  for (;;) {
    const piece = await content.read(at, PREFIX_BYTES)
    const { to, lacks } = followMp3(piece)
    if (lacks > 0 && at + piece.length >= content.bytes) return `its last frame lacks ${lacks} bytes`
    if (to === 0) return null
    at += to
  }
}
