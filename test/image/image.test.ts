/** The image that image/ builds without Docker: its contents, its archive, and a start of each role. */
import { execFileSync } from 'node:child_process'
import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { readDockerfile } from '../../image/dockerfile.ts'
import { answer, at, chat, get, post } from '../flows/calls.ts'
import { openSite, ROLES_APART } from '../flows/deployment.ts'
import { eventually } from '../flows/eventually.ts'
import { REPOSITORY, whole } from '../flows/program.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { canBox, startBoxed } from './boxed.ts'

t.setTimeout(1_800_000)

const scratch = await mkdtemp(join(tmpdir(), 'tollgate-image-'))
t.teardown(() => rm(scratch, { recursive: true, force: true }))
const image = join(scratch, 'root')
execFileSync(process.execPath, [join(REPOSITORY, 'image/build.ts'), image, join(scratch, 'image.tar'), 'tollgate:test'], { stdio: 'ignore' })
const recipe = readDockerfile(await readFile(join(REPOSITORY, 'Dockerfile'), 'utf8'))

t.test('it contains the files that the Dockerfile copies, the production dependencies, and nothing else of the checkout', async (t) => {
  const copied = recipe.copies.map(({ to }) => to.replace('./', ''))
  t.same((await readdir(join(image, recipe.workdir))).sort(), [...copied, 'node_modules'].sort())
  t.same(await readdir(join(image, recipe.workdir, 'node_modules')).then((names) => names.filter((name) => ['tap', 'typescript', 'node'].includes(name))), [])
})

t.test('its archive names its user, its command and its layer by their digests', async (t) => {
  const read = (path: string) => JSON.parse(execFileSync('tar', ['-xOf', join(scratch, 'image.tar'), path], { encoding: 'utf8' }))
  const [{ Config, RepoTags, Layers }] = read('manifest.json')
  t.same(RepoTags, ['tollgate:test'])
  const { config, rootfs } = read(Config)
  t.match(config, { User: '1000:1000', Entrypoint: recipe.entrypoint, WorkingDir: recipe.workdir, ExposedPorts: { '8080/tcp': {}, '9090/tcp': {} } })
  t.same(Layers, rootfs.diff_ids.map((digest: string) => `blobs/${digest.replace(':', '/')}`))
  const layer = execFileSync('sh', ['-c', `tar -xOf ${join(scratch, 'image.tar')} ${Layers[0]} | sha256sum`], { encoding: 'utf8' })
  t.equal(`sha256:${layer.slice(0, 64)}`, rootfs.diff_ids[0])
})

t.test('it runs in each role as its user, with a read-only root file system where possible', async (t) => {
  const [store, brokers] = [await mongodb(t), await kafka(t)]
  if (store === null || brokers === null) return
  t.comment(canBox ? 'in a chroot' : 'in place: a chroot needs root')
  const site = openSite({ mongodb: store, brokers })
  t.teardown(() => site.close())
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  await cp(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const env = await site.settings(folder)
  const processes = await Promise.all(ROLES_APART.map((role) => startBoxed({ image, folder, role, env })))
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
  for (const one of processes) t.same(await one.stop(), { code: 0, signal: null }, `${one.role} stops cleanly`)
})
