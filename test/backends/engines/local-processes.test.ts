/** Processes of FFmpeg end with their run and with the process that started them. FFmpeg's absence is reported. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { available } from '../../../src/backends/engines/local/ffmpeg/available.ts'
import { scratchFolder, sweepScratch } from '../../../src/backends/engines/process/scratch.ts'
import { madeOf, LIMITS, programs, studio, withoutFfmpeg } from './ffmpeg-media.ts'

const LOCAL = join(import.meta.dirname, '../../../src/backends/engines/local')
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

t.test('SIGKILL of the process amid a run leaves no ffmpeg, and its scratch folder is swept', { skip }, async (t) => {
  const { folder, make } = await studio(t)
  const film = make('film.mp4', ...LONG)
  const base = join(folder, 'scratch')
  const script = join(folder, 'worker.ts')
  await writeFile(script, `
    import { trim } from '${LOCAL}/ffmpeg/trim.ts'
    import { scratchFolder } from '${LOCAL}/../process/scratch.ts'
    const { path } = await scratchFolder('${base}')
    const job = { programs: ${JSON.stringify(programs)}, scratch: path, signal: new AbortController().signal, limits: ${JSON.stringify(LIMITS)}, inputs: ['${film}'] }
    await trim({ ...job, request: { kind: 'trim', startMs: 0, endMs: null, mode: 'accurate', format: 'mp4' }, progress: (percent) => console.log(percent) })`)
  const worker = spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => worker.kill('SIGKILL'))
  await once(createInterface(worker.stdout), 'line')
  t.ok((await processesIn(base)).length > 0)
  worker.kill('SIGKILL')
  await once(worker, 'exit')
  while ((await processesIn(folder)).length > 0) await pause(10)

  const mine = await scratchFolder(base)
  t.equal((await readdir(base)).length, 2)
  await sweepScratch(base)
  t.same((await readdir(base)).map((name) => join(base, name)), [mine.path])
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
