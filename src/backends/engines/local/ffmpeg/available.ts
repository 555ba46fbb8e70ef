/** Discovery of FFmpeg: where ffmpeg and ffprobe are installed, and which output formats their build supports. */
import { access, constants } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runChild } from '../../process/child.ts'
import { FORMATS, type FormatName } from './formats.ts'

/** Absolute paths. */
export type Programs = { ffmpeg: string; ffprobe: string }

/** `message` is a sentence for the operator. */
export type Missing = { outcome: 'missing'; message: string }

/** The formats that the build can write, the default first. */
export type Available = { outcome: 'found'; programs: Programs; formats: readonly [FormatName, ...FormatName[]] } | Missing

const FOLDERS = ['/usr/local/bin', '/usr/bin', '/bin', '/opt/homebrew/bin']
const VIDEO_FILTERS = ['scale', 'pad', 'crop', 'fps', 'tpad', 'trim', 'bwdif', 'setparams', 'zscale', 'tonemap', 'split', 'xfade', 'concat']
const AUDIO_FILTERS = ['aresample', 'apad', 'atrim', 'asplit', 'afade', 'amix', 'anullsrc']
const LIMITS = { wallMs: 20_000, cpuSeconds: 20, addressSpaceBytes: 2 ** 31, fileBytes: 0 }

/** Searches `folders` for ffmpeg and ffprobe. Executes neither, so that a start can wait for it. */
export async function installed(folders: readonly string[] = FOLDERS): Promise<{ outcome: 'found'; programs: Programs } | Missing> {
  const [ffmpeg, ffprobe] = [await programIn(folders, 'ffmpeg'), await programIn(folders, 'ffprobe')]
  if (!ffmpeg || !ffprobe)
    return missing(`${ffmpeg ? 'ffprobe' : 'ffmpeg'} is not installed (searched ${folders.join(', ')}); Debian's package is ffmpeg`)
  return { outcome: 'found', programs: { ffmpeg, ffprobe } }
}

/** Searches `folders` for ffmpeg and ffprobe, and their build for the encoders and filters that `trim` and `merge` need. */
export async function available(folders: readonly string[] = FOLDERS): Promise<Available> {
  const found = await installed(folders)
  return found.outcome === 'missing' ? found : supported(found.programs)
}

/** The output formats of a build, by executing its programs. */
export async function supported({ ffmpeg, ffprobe }: Programs): Promise<Available> {
  const [encoders, filters, demuxers] = await Promise.all([
    namesOf(ffmpeg, '-encoders'),
    namesOf(ffmpeg, '-filters'),
    namesOf(ffprobe, '-demuxers'),
  ])
  if (!encoders || !filters || !demuxers) return missing(`${encoders && filters ? ffprobe : ffmpeg} cannot be executed`)
  const lacking = [...VIDEO_FILTERS, ...AUDIO_FILTERS].filter((name) => !filters.has(name))
  if (lacking.length > 0) return missing(`${ffmpeg} is too old or was built without the filters ${lacking.join(', ')}`)
  const [first, ...others] = (Object.keys(FORMATS) as FormatName[]).filter((name) =>
    FORMATS[name].encoders.every((encoder) => encoders.has(encoder)),
  )
  if (!first) return missing(`${ffmpeg} was built without the encoders of ${Object.keys(FORMATS).join(', ')}`)
  return { outcome: 'found', programs: { ffmpeg, ffprobe }, formats: [first, ...others] }
}

const missing = (message: string): Missing => ({ outcome: 'missing', message })

async function programIn(folders: readonly string[], name: string): Promise<string | null> {
  for (const folder of folders) {
    const path = join(folder, name)
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return path
  }
  return null
}

/** The names of a list that the program prints (flags, name, description); null when it cannot be executed. */
async function namesOf(command: string, list: '-encoders' | '-filters' | '-demuxers'): Promise<Set<string> | null> {
  const names = new Set<string>()
  const onLine = (line: string): void => void names.add(line.trim().split(/\s+/)[1] ?? '')
  const ended = await runChild({
    command,
    args: ['-hide_banner', list],
    cwd: tmpdir(),
    limits: LIMITS,
    signal: new AbortController().signal,
    onLine,
  })
  return ended.outcome === 'ended' && ended.code === 0 ? names : null
}
