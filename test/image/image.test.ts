/** The image that image/ builds without Docker: its contents, its archive, and a start of each role. */
import { execFileSync } from 'node:child_process'
import { cp, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { writeArchive } from '../../image/archive.ts'
import { readDockerfile } from '../../image/dockerfile.ts'
import { addPackages } from '../../image/rootfs.ts'
import { withoutFfmpeg } from '../backends/engines/ffmpeg-media.ts'
import { FILM, IMAGE } from '../contracts/operations/sources.ts'
import { answer, at, chat, get, post, type Answer } from '../flows/calls.ts'
import { ROLES_APART, siteFor } from '../flows/deployment.ts'
import { eventually } from '../flows/eventually.ts'
import { REPOSITORY, whole, type Process } from '../flows/program.ts'
import { folderFor } from '../temporary-folder.ts'
import { canBox, startBoxed } from './boxed.ts'
import { compiledCode } from './compiled-code.ts'

t.setTimeout(1_800_000)

const scratch = await folderFor(t)
const image = join(scratch, 'root')
execFileSync(process.execPath, [join(REPOSITORY, 'image/build.ts'), image], { stdio: ['ignore', 'ignore', 'inherit'] })
const recipe = readDockerfile(await readFile(join(REPOSITORY, 'Dockerfile'), 'utf8'))

t.test('it contains the files that the Dockerfile copies, the production dependencies, their bill of materials and licences, and nothing else of the checkout', async (t) => {
  const copied = recipe.copies.map(({ to }) => to.replace('./', ''))
  t.same((await readdir(join(image, recipe.workdir))).sort(), [...copied, 'node_modules', 'sbom.cdx.json', 'LICENSES.txt', ...(canBox ? ['compiled'] : [])].sort())
  t.same(await readdir(join(image, recipe.workdir, 'node_modules')).then((names) => names.filter((name) => ['tap', 'typescript', 'node', 'vite', 'preact'].includes(name))), [])
  t.ok((await readdir(join(image, recipe.workdir, 'plugins/dashboard/dist'))).includes('index.html'), 'the page of the dashboard is built')
})

t.test('its bill of materials lists the packages that are installed in it, those in the page of the dashboard, and Node', async (t) => {
  const app = join(image, recipe.workdir)
  const read = async (path: string) => JSON.parse(await readFile(join(app, path), 'utf8'))
  type Package = { name: string; version: string }
  const names = (packages: readonly Package[]) => [...new Set(packages.map(({ name, version }) => `${name} ${version}`))].sort()
  const { packages }: { packages: Record<string, { name?: string; version: string; link?: boolean }> } = await read('node_modules/.package-lock.json')
  const installed = Object.entries(packages).filter(([path, { link }]) => path.startsWith('node_modules/') && !link).map(([path, { name, version }]) => ({ name: name ?? path.split('node_modules/').at(-1) ?? '', version }))
  const bundled: Package[] = await read('plugins/dashboard/dist/licenses.json')
  const components: (Package & { type: string })[] = (await read('sbom.cdx.json')).components
  // Models are no packages (sbom.test.ts).
  t.same(names(components.filter(({ type }) => type !== 'machine-learning-model')), names([...installed, ...bundled, { name: 'node', version: process.versions.node }]))
})

t.test('the build context has every file that the Dockerfile copies from it', async (t) => {
  const lines = (await readFile(join(REPOSITORY, 'Dockerfile'), 'utf8')).split('\n')
  const copied = lines.filter((line) => /^COPY (?!--from)/.test(line)).flatMap((line) => line.split(/\s+/).slice(1, -1))
  const kept = (await readFile(join(REPOSITORY, '.dockerignore'), 'utf8')).split('\n').flatMap((line) => /^!(.+)$/.exec(line)?.[1] ?? [])
  t.same(copied.filter((path) => !kept.some((one) => path === one || path.startsWith(`${one}/`))), [])
})

t.test('its archive names its user, its command and its layer by their digests', async (t) => {
  const archive = join(scratch, 'image.tar')
  await writeArchive(t.testdir({ data: {}, etc: { passwd: 'root' } }), archive, 'tollgate:test', recipe)
  const read = (path: string) => JSON.parse(execFileSync('tar', ['-xOf', archive, path], { encoding: 'utf8' }))
  const [{ Config, RepoTags, Layers }] = read('manifest.json')
  t.same(RepoTags, ['tollgate:test'])
  const { config, rootfs } = read(Config)
  t.match(config, { User: '1000:1000', Entrypoint: recipe.entrypoint, WorkingDir: recipe.workdir, ExposedPorts: { '8080/tcp': {}, '9090/tcp': {} } })
  t.same(Layers, rootfs.diff_ids.map((digest: string) => `blobs/${digest.replace(':', '/')}`))
  const layer = execFileSync('sh', ['-c', `tar -xOf ${archive} ${Layers[0]} | sha256sum`], { encoding: 'utf8' })
  t.equal(`sha256:${layer.slice(0, 64)}`, rootfs.diff_ids[0])
})

t.test('it runs in each role as its user, with a read-only root file system where possible', async (t) => {
  const place = await siteFor(t)
  if (place === null) return
  const { site, folder } = place
  t.comment(canBox ? 'in a chroot' : 'in place: a chroot needs root')
  await cp(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const env = { ...(await site.settings(folder)), NODE_DEBUG_NATIVE: 'COMPILE_CACHE' }
  // In the chart only a worker's pod has /tmp.
  const processes = await Promise.all(ROLES_APART.map((role) => startBoxed({ image, folder, role, env: role === 'worker' ? env : { ...env, TMPDIR: '/none' } })))
  t.teardown(() => Promise.all(processes.map((one) => one.kill())))
  for (const { role, opsUrl } of processes) t.equal((await fetch(`${opsUrl}/readyz`)).status, 200, `${role} is ready`)
  const gateway = processes.find(({ role }) => role === 'gateway')
  if (!gateway) throw new Error('there is no gateway')
  const program = { ...gateway, ...whole(processes, join(folder, 'data'), 'demo') }
  t.equal((await chat(program, await program.key('demo-coding-key'))).status, 200)
  const media = await program.key('demo-media-key')
  const { status, body } = await answer(await post(program, media, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64' }))
  t.equal(status, 202)
  const done = await eventually('the task to end', async () => {
    const record = (await get(program, media, `/api/v1/generations/${String(at(body, 'id'))}`)).body
    return at(record, 'status') === 'completed' ? record : null
  })
  t.equal((await fetch(String(at(done, 'result', 'image_url')))).status, 200)
  for (const one of processes) {
    t.same(await one.stop(), { code: 0, signal: null }, `${one.role} stops cleanly`)
    if (canBox) startsCompiled(t, one)
  }
})

/** V8's flags change when a start takes long: a module's code may be refused then, but it is there, and its types are stripped. */
function startsCompiled(t: Test, { role, log }: Process): void {
  const { accepted = [], 'not initialized': missing = [] } = compiledCode(log)
  t.not(accepted.length, 0, `${role} starts from compiled code`)
  t.same(missing.filter((module) => !module.includes('/node_modules/')), [], `${role} strips no types`)
}

t.test('the target gateway has no packages of engines', async (t) => {
  const target = readDockerfile(await readFile(join(REPOSITORY, 'Dockerfile'), 'utf8'), 'gateway')
  t.same(target, { ...recipe, install: [...recipe.install, '--workspaces=false'] })
})

t.test('the target ffmpeg is the image with one package more', async (t) => {
  const target = readDockerfile(await readFile(join(REPOSITORY, 'Dockerfile'), 'utf8'), 'ffmpeg')
  t.same(target, { ...recipe, packages: ['ffmpeg'] })
  t.same(recipe.packages, [])
})

/** The user of the chart's pods, whom no file of the image names. */
const POD_USER = '65532:65532'
const dataUrl = (type: string, bytes: Buffer) => `data:${type};base64,${bytes.toString('base64')}`
const OPERATIONS = {
  pictures: [
    { operation: 'upscale', media_url: dataUrl('image/png', IMAGE) },
    { operation: 'background_remove', media_url: dataUrl('image/png', IMAGE) },
  ],
  films: [{ operation: 'trim', media_url: dataUrl('video/mp4', FILM), start_time: 0.1 }],
}

/** Creates these operations in the image, as a pod's user without a name where possible. Those that are accepted have ended. */
async function operate(t: Test, bodies: readonly object[]): Promise<Answer['body'][]> {
  const folder = await folderFor(t)
  await cp(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const one = await startBoxed({ image, folder, role: 'all', owner: POD_USER, env: { NODE_DEBUG_NATIVE: 'COMPILE_CACHE' } })
  t.teardown(() => one.kill())
  const program = { ...one, ...whole([one], join(folder, 'data'), 'demo') }
  const key = await program.key('demo-media-key')
  const answers: Answer['body'][] = []
  for (const body of bodies) {
    const { body: task } = await answer(await post(program, key, '/api/v1/operations', body))
    const id = at(task, 'id')
    const ended = async () => {
      const record = (await get(program, key, `/api/v1/operations/${String(id)}`)).body
      return ['completed', 'failed'].includes(String(at(record, 'status'))) ? record : null
    }
    answers.push(id === undefined ? task : await eventually('the task to end', ended))
  }
  t.same(await one.stop(), { code: 0, signal: null })
  if (canBox) startsCompiled(t, one)
  return answers
}

t.test('it edits pictures, as a user that it does not know; without ffmpeg it offers no films', async (t) => {
  const [upscaled, cut, trimmed] = await operate(t, [...OPERATIONS.pictures, ...OPERATIONS.films])
  t.match(upscaled, { status: 'completed', result: { content_type: 'image/png', width: 80, height: 60 } })
  t.match(cut, { status: 'completed', result: { content_type: 'image/png', width: 40, height: 30 } })
  if (canBox) t.match(trimmed, { status: 400, error: { code: 'not_supported' } })
})

t.test('with the programs of its target ffmpeg it edits films', { skip: withoutFfmpeg }, async (t) => {
  addPackages(image, ['ffmpeg'])
  const [trimmed] = await operate(t, OPERATIONS.films)
  t.match(trimmed, { status: 'completed', result: { content_type: 'video/mp4', width: 64, height: 48 } })
})
