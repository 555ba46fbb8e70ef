/**
 * What a media file is, by its own bytes: its type, size and length. Pure. Nothing here decodes a picture or a sample; a file that is corrupt behind its header
 * is found out by whoever decodes it.
 */
import { flacHeader, mp3Header, oggHeader, wavHeader } from './media-info/audio-headers.ts'
import { NOTHING, textAt, type Header, type Piece } from './media-info/header.ts'
import { heifHeader } from './media-info/heif-header.ts'
import { gifHeader, jpegHeader, pngHeader, tiffHeader, webpHeader } from './media-info/image-headers.ts'
import { matroskaHeader } from './media-info/matroska-header.ts'
import { mp4Brand, mp4Header } from './media-info/mp4-header.ts'

export type MediaInfo = Header & { contentType: string }

/** How much of a file holds the header of nearly every one. */
export const PREFIX_BYTES = 256 * 1024

const READERS: Record<string, (prefix: Uint8Array, totalBytes: number | null, rest: Piece) => Header> = {
  'image/png': pngHeader,
  'image/jpeg': jpegHeader,
  'image/webp': webpHeader,
  'image/gif': gifHeader,
  'image/tiff': tiffHeader,
  'image/avif': heifHeader,
  'image/heic': heifHeader,
  'video/mp4': mp4Header,
  'video/quicktime': mp4Header,
  'audio/mp4': mp4Header,
  'video/webm': matroskaHeader,
  'video/x-matroska': matroskaHeader,
  'audio/ogg': oggHeader,
  'audio/wav': wavHeader,
  'audio/mpeg': mp3Header,
  'audio/flac': flacHeader,
}

/**
 * Reads the beginning of a file, `PREFIX_BYTES` or all of it. `totalBytes` is the size of the file where that is known: the length of some
 * audio follows from it. When the result has `continuesAt`, read from there and call again with that as `rest`. Null: not a media file that
 * is known here.
 */
export function mediaInfo(prefix: Uint8Array, totalBytes: number | null, rest: Piece = { at: 0, bytes: prefix }): MediaInfo | null {
  const contentType = contentTypeOf(prefix)
  if (contentType === null) return null
  const read = READERS[contentType]
  return { ...NOTHING, contentType, ...(read ? read(prefix, totalBytes, rest) : {}) }
}

/** The same of a file of `size` bytes. `read` is called for its beginning and for what that points to, `placesMax` times at most. */
export async function readMediaInfo(
  size: number,
  placesMax: number,
  read: (at: number, bytes: number) => Promise<Uint8Array>,
): Promise<MediaInfo | null> {
  const prefix = await read(0, PREFIX_BYTES)
  let info = mediaInfo(prefix, size)
  for (let places = 1; places < placesMax; places++) {
    const at = info?.continuesAt ?? size
    if (at >= size) break
    info = mediaInfo(prefix, size, { at, bytes: await read(at, PREFIX_BYTES) })
  }
  return info
}

/** The type of a file by its first bytes (WHATWG MIME Sniffing, section 6, and the formats' own specifications), or null. */
export function contentTypeOf(bytes: Uint8Array): string | null {
  const text = (from: number, to: number): string => textAt(bytes, from, to - from)
  const begins = (...values: number[]): boolean => values.every((value, i) => bytes[i] === value)
  if (begins(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return 'image/png'
  if (begins(0xff, 0xd8, 0xff)) return 'image/jpeg'
  if (/^GIF8[79]a$/.test(text(0, 6))) return 'image/gif'
  if (text(0, 4) === 'RIFF' && text(8, 12) === 'WEBP') return 'image/webp'
  if (text(0, 4) === 'RIFF' && text(8, 12) === 'WAVE') return 'audio/wav'
  if (text(0, 4) === 'RIFF' && text(8, 12) === 'AVI ') return 'video/x-msvideo'
  if (begins(0x49, 0x49, 0x2a, 0) || begins(0x4d, 0x4d, 0, 0x2a)) return 'image/tiff'
  if (begins(0x42, 0x4d) && bytes.length >= 26) return 'image/bmp'
  if (text(4, 8) === 'ftyp') return mp4Brand(bytes)
  // QuickTime files need no ftyp.
  if (['moov', 'mdat', 'wide', 'free', 'skip', 'pnot'].includes(text(4, 8))) return 'video/quicktime'
  if (begins(0x1a, 0x45, 0xdf, 0xa3)) return text(0, 64).includes('webm') ? 'video/webm' : 'video/x-matroska'
  if (text(0, 4) === 'fLaC') return 'audio/flac'
  if (text(0, 4) === 'OggS') return text(28, 35) === '\x80theora' ? 'video/ogg' : 'audio/ogg'
  if (text(0, 3) === 'ID3') return 'audio/mpeg'
  // Three packets of an MPEG transport stream (ISO/IEC 13818-1, 2.4.3.2).
  if ([0, 188, 376].every((at) => bytes[at] === 0x47)) return 'video/mp2t'
  return bytes[0] === 0xff ? mpegAudio(bytes[1] ?? 0, bytes[2] ?? 0) : null
}

/** A frame of MPEG audio has a layer, a bit rate and a sampling rate; without a layer the same beginning is AAC in ADTS. */
function mpegAudio(second: number, third: number): string | null {
  if ((second & 0xf6) === 0xf0) return 'audio/aac'
  const [layer, bitrate, rate] = [(second >> 1) & 3, third >> 4, (third >> 2) & 3]
  return (second & 0xe0) === 0xe0 && layer !== 0 && bitrate !== 0 && bitrate !== 15 && rate !== 3 ? 'audio/mpeg' : null
}
