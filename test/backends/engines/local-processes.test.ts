/** Processes of FFmpeg end with their run; with the process that started them: test/flows/operation-kills.test.ts. FFmpeg's absence is reported. */
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { available } from '../../../src/backends/engines/local/ffmpeg/available.ts'
import { madeOf, LIMITS, programs, studio, withoutFfmpeg } from './ffmpeg-media.ts'

/** A video that takes seconds to encode. */
const LONG = ['-f', 'lavfi', '-i', 'testsrc2=s=640x360:r=25:d=40', '-c:v', 'libx264', '-preset', 'ultrafast', '-pix_fmt', 'yuv420p']

/** The processes with a folder in their arguments. */
async function processesIn(folder: string): Promise<number[]> {
  const found: number[] = []
  for (const pid of (await readdir('/proc')).map(Number).filter((pid) => pid > 0)) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    if (command.includes(folder) && pid !== process.pid) found.push(pid)
  }
  return found
}

const skip = withoutFfmpeg || (process.platform !== 'linux' && 'reads /proc')

t.test('an aborted trim or merge rejects with the reason, and leaves no process', { skip }, async (t) => {
  const { folder, make, trim, merge } = await studio(t)
  const film = make('film.mp4', ...LONG)
  for (const run of [trim.bind(null, film, {}), merge.bind(null, [film, film], {})]) {
    const controller = new AbortController()
    const reason = new Error('canceled')
    let seen = 0
    const look = async (): Promise<void> => {
      seen = Math.max(seen, (await processesIn(folder)).length)
      controller.abort(reason)
    }
    await t.rejects(run({ signal: controller.signal, progress: () => void look(), limits: { ...LIMITS, durationMs: 100_000 } }), reason)
    t.ok(seen > 0, 'ffmpeg was running')
    t.same(await processesIn(folder), [])
    await t.rejects(run({ signal: AbortSignal.abort(reason) }), reason)
  }
})

t.test('a run that exhausts its memory is internal and retryable', { skip }, async (t) => {
  const { folder, make, trim } = await studio(t)
  const film = make('film.mp4', '-f', 'lavfi', '-i', 'testsrc2=s=64x48:r=25:d=1', '-c:v', 'libx264')
  const cramped = join(folder, 'ffmpeg')
  await writeFile(cramped, `#!/bin/sh\nulimit -v 200000\nexec ${programs.ffmpeg} "$@"\n`, { mode: 0o755 })
  t.match(await trim(film, {}, { programs: { ...programs, ffmpeg: cramped } }), { outcome: 'failed', code: 'internal', retryable: true })
  t.equal(madeOf(await trim(film, {})).facts.durationMs, 1000, 'the next run has its own limits')
})

t.test('a missing or unusable ffmpeg, ffprobe, filter or encoder is named in a sentence', async (t) => {
  const { folder } = await studio(t)
  const program = async (name: string, script: string): Promise<void> => {
    await mkdir(join(folder, 'bin'), { recursive: true })
    await writeFile(join(folder, 'bin', name), script)
    await chmod(join(folder, 'bin', name), 0o755)
  }
  const sentence = async (): Promise<string> => {
    const found = await available([join(folder, 'bin')])
    return found.outcome === 'missing' ? found.message : `found ${found.formats}`
  }
  t.match(await sentence(), /^ffmpeg is not installed \(searched .*\); Debian's package is ffmpeg$/)
  await program('ffmpeg', '#!/bin/sh\nexit 1\n')
  t.match(await sentence(), /^ffprobe is not installed/)
  await program('ffprobe', '#!/bin/sh\nexit 0\n')
  t.match(await sentence(), /bin\/ffmpeg cannot be executed$/)
  await program('ffmpeg', '#!/bin/sh\nexit 0\n')
  t.match(await sentence(), /bin\/ffmpeg is too old or was built without the filters scale, pad/)
  const video = ['scale', 'pad', 'crop', 'fps', 'tpad', 'trim', 'bwdif', 'setparams', 'zscale', 'tonemap', 'split', 'xfade', 'concat']
  const filters = [...video, 'aresample', 'apad', 'atrim', 'asplit', 'afade', 'amix', 'anullsrc']
  await program('ffmpeg', `#!/bin/sh\n[ "$2" = -filters ] && printf ' ... %s A->A x\\n' ${filters.join(' ')}\nexit 0\n`)
  t.match(await sentence(), /bin\/ffmpeg was built without the encoders of mp4, webm, m4a, mp3, wav, flac$/)
  await program('ffmpeg', `#!/bin/sh\n[ "$2" = -filters ] && printf ' ... %s A->A x\\n' ${filters.join(' ')}\n[ "$2" = -encoders ] && printf ' A..... pcm_s16le PCM\\n A..... aac AAC\\n'\nexit 0\n`)
  t.equal(await sentence(), 'found m4a,wav')
})
