/** Resources declared by a folder while its files are edited, broken, missing or unreadable. */
import { execFile } from 'node:child_process'
import { chmod, mkdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { parse } from 'yaml'
import { CI, openFolder, openWatched, OTHER, settle, STUDIO, warned } from './manifest-folder.ts'
import { apiKey, mediaPlan } from './manifests.ts'

const CYCLIC = 'apiVersion: tollgate.dev/v1alpha1\nkind: Plan\nmetadata: { name: studio, namespace: acme }\nspec: &a\n  product: *a\n'

t.test('a file that is not valid YAML changes nothing, however long, and is reported once', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), apiKey('ci', 'studio'))
  const { resources, syncTwice } = await openWatched(folder)
  for (const broken of ['kind: Plan\n  metadata: [', 'a: *missing', 'a: 1\na: 2', CYCLIC, `a: &x [1]\nb: [${'*x,'.repeat(60)}]`, '['.repeat(5000), '\u0000', '!!js/function "x"']) {
    folder.log.length = 0
    await folder.write('a.yaml', broken)
    for (let i = 0; i < 3; i++) await syncTwice(5_000)
    t.ok(resources.get(STUDIO) && resources.get(CI), JSON.stringify(broken.slice(0, 20)))
    const [first, ...more] = warned(folder)
    t.match(first, /^manifest refused.*a\.yaml: /)
    t.match(`${first}${more}`, /none of its resources is deleted until it is fixed: Plan\/acme\/studio, ApiKey\/acme\/ci$/)
    t.ok(more.length <= 1, 'the error, and the resources that stay')
    t.match(resources.health(), { ok: true, detail: /a\.yaml/ })
  }
  await folder.write('a.yaml', mediaPlan('studio', { state: 'Suspended' }), apiKey('ci', 'studio'))
  await syncTwice()
  t.match(resources.get(STUDIO), { metadata: { generation: 2 }, spec: { state: 'Suspended' } })
  t.same(resources.health(), { ok: true, detail: 'manifests loaded', refused: 0 })
})

t.test('a refused document changes nothing; the other documents of its file are applied, and missing ones are deleted', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), mediaPlan('other'), apiKey('ci', 'studio', { rotationRevision: 2 }), apiKey('leaked', 'studio'))
  const { resources, syncTwice } = await openWatched(folder)
  await folder.write('a.yaml', mediaPlan('studio', { requestsPerMinute: 0 }), mediaPlan('other', { state: 'Suspended' }), apiKey('ci', 'studio', { rotationRevision: 1 }))
  await syncTwice()
  t.ok(resources.get({ ...CI, name: 'leaked' }), 'not at once')
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.match(resources.get(STUDIO), { metadata: { generation: 1 }, spec: { requestsPerMinute: 600 } })
  t.match(resources.get(OTHER), { metadata: { generation: 2 }, spec: { state: 'Suspended' } })
  t.match(resources.get(CI), { metadata: { generation: 1 }, spec: { rotationRevision: 2 } })
  t.equal(resources.get({ ...CI, name: 'leaked' }), null)
})

t.test('a document that does not name its resource validly may be any resource of its file: none is deleted, and those that stay are reported', async (t) => {
  const folder = await openFolder(t)
  for (const [nameless, why] of [
    [{ ...mediaPlan('studio'), kind: 'Plam' }, 'line 3: kind: must be Plan or ApiKey'],
    [apiKey('C I', 'studio'), /^line 3: metadata.name/],
    [apiKey('', 'studio'), /^line 3: metadata.name/],
    ['hello', 'line 3: kind: must be Plan or ApiKey'],
  ] as const) {
    await folder.write('a.yaml', mediaPlan('studio'), mediaPlan('other'), apiKey('ci', 'studio'))
    const { resources, syncTwice } = await openWatched(folder)
    folder.log.length = 0
    await folder.write('a.yaml', mediaPlan('other', { state: 'Suspended' }), nameless)
    for (let i = 0; i < 3; i++) await syncTwice(5_000)
    t.ok(resources.get(STUDIO) && resources.get(CI))
    t.match(resources.get(OTHER), { spec: { state: 'Suspended' } }, 'the others are applied')
    const shown = ['a.yaml: ', 'a.yaml: none of its resources is deleted until it is fixed: Plan/acme/studio, ApiKey/acme/ci']
    t.match(warned(folder).map((line) => line.replace('manifest refused; the last accepted one stays in force: a.yaml: ', '')), [why, shown[1]!.slice('a.yaml: '.length)])
    t.match(resources.health(), { ok: true, detail: new RegExp(shown.join('.*; ')) })
    await folder.write('b.yaml', apiKey('ci', 'studio'))
    await syncTwice()
    t.match(resources.health().detail, /until it is fixed: Plan\/acme\/studio$/, 'a resource that another file declares is not listed')
    await rm(join(folder.plans, 'b.yaml'))
    await folder.write('a.yaml', mediaPlan('other', { state: 'Suspended' }))
    await settle(resources, folder)
    t.same([resources.get(STUDIO), resources.get(CI)], [null, null])
    t.same(resources.health(), { ok: true, detail: 'manifests loaded', refused: 0 })
    await resources.close()
  }
})

t.test('an error has the line of its field, or of the object that lacks it', async (t) => {
  const folder = await openFolder(t)
  const lines = [
    'apiVersion: tollgate.dev/v1alpha1', // 1
    'kind: Plan',
    'metadata: { name: other, namespace: acme }',
    'spec: { product: Media, media: { allowance: "1" } }',
    '---', // 5
    '# the invalid document',
    'apiVersion: tollgate.dev/v1alpha1',
    'kind: Plan',
    'metadata: { name: studio, namespace: acme }',
    'spec:', // 10
    '  product: Media',
    '  requestsPerMinute: 600',
    '  colour:',
    '    red: 1',
    '  media:', // 15
    '    prices:',
    '      - { kind: image, amount: "0.04", per: Job }',
    '      - kind: video',
    '        amount: 0.05',
    '        per: Second', // 20
    '...',
  ]
  await folder.write('a.yaml', lines.join('\n'))
  const { resources, syncTwice } = await openWatched(folder)
  const detail = () => resources.health().detail.replace(/known fields: [^;]*/g, '…')
  t.equal(detail(), 'a.yaml: line 13: Plan/acme/studio: spec.colour: unknown field; …; line 16: spec.media.allowance: is required; line 19: spec.media.prices[1].amount: must be string, not 0.05: write it in quotes, "0.05"')
  lines[18] = '        amount: "0.05"'
  lines.splice(12, 3, '  media:', '    allowance: "1"', '    periodDays: 1', '    periodMonths: 1')
  await folder.write('a.yaml', lines.join('\n'))
  await syncTwice()
  t.match(detail(), /^a\.yaml: line 13: Plan\/acme\/studio: spec\.media: /, 'a rule has the line where its object begins')
})

t.test('the status of a resource has the reason of a refused document until it is fixed', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio', { state: 'Retired' }))
  const { resources, syncTwice } = await openWatched(folder)
  const status = { observedGeneration: 1, activeKeys: 0, conditions: [{ type: 'Ready', status: 'False' as const, reason: 'PlanRetired', message: 'x', observedGeneration: 1, lastTransitionTime: '2026-01-05T00:00:00.000Z' }] }
  const file = (name: string) => readFile(join(folder.status, 'acme', 'plan', `${name}.yaml`), 'utf8').then((text) => parse(text), () => null)
  await resources.setStatus(STUDIO, status)
  await folder.write('a.yaml', mediaPlan('studio', { state: 'Active' }), mediaPlan('other', { product: 'Video' }))
  await syncTwice()
  const refused = { type: 'ManifestAccepted', status: 'False', reason: 'ManifestRefused' }
  t.match((await file('studio')).conditions, [{ type: 'Ready' }, { ...refused, message: 'a.yaml: line 1: Plan/acme/studio: spec.state: a Retired plan stays Retired' }])
  t.match(await file('other'), { conditions: [{ ...refused, message: /spec\.product: must be one of/ }] }, 'also for a resource that was never accepted')
  t.same(await resources.status(STUDIO), status, 'the controller sees its own conditions only')
  await resources.setStatus(STUDIO, { ...status, activeKeys: 1 })
  t.equal((await file('studio')).conditions.length, 2, 'and its writes keep the condition of the refusal')
  await folder.write('a.yaml', mediaPlan('studio', { state: 'Retired' }))
  await syncTwice()
  t.same(await file('studio'), { ...status, activeKeys: 1 })
  t.equal(await file('other'), null)
})

t.test('the reason of a refused document that could not be written to the status is written later', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'))
  const { resources, syncTwice } = await openWatched(folder)
  await mkdir(folder.status, { recursive: true })
  await writeFile(join(folder.status, 'acme'), 'in the way')
  await folder.write('a.yaml', mediaPlan('studio', { requestsPerMinute: 0 }))
  await syncTwice()
  t.match(resources.health(), { ok: false, detail: /DATA_DIR cannot be read or written/ })
  await rm(join(folder.status, 'acme'))
  await resources.sync()
  t.match(resources.health(), { ok: true })
  t.match(parse(await readFile(join(folder.status, 'acme', 'plan', 'studio.yaml'), 'utf8')), { conditions: [{ type: 'ManifestAccepted', status: 'False' }] })
})

t.test('a file that is still being written is not applied', async (t) => {
  const folder = await openFolder(t)
  const file = join(folder.plans, 'a.yaml')
  await folder.write('a.yaml', mediaPlan('studio', { requestsPerMinute: 600 }))
  const { resources, notified } = await openWatched(folder)
  notified.length = 0
  const whole = JSON.stringify(mediaPlan('studio', { requestsPerMinute: 700 }))
  for (let length = 0; length < whole.length; length += 40) {
    await writeFile(file, whole.slice(0, length))
    await resources.sync()
  }
  t.same(warned(folder), [])
  await writeFile(file, whole)
  await resources.sync()
  t.same(notified, [])
  await resources.sync()
  t.same(notified, ['Plan studio'])
  t.equal(resources.get(STUDIO)?.metadata.generation, 2)
})

t.test('a document that is missing for less than two seconds is not deleted', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), apiKey('ci', 'studio'))
  const { resources, notified } = await openWatched(folder)
  notified.length = 0
  const missingBriefly = async (act: () => Promise<void>, back: () => Promise<void>) => {
    await act()
    for (let ms = 0; ms < 1_900; ms += 100) {
      await resources.sync()
      folder.time.now += 100
    }
    await back()
    await resources.sync()
    await resources.sync()
    folder.time.now += 5_000
    await resources.sync()
  }
  const a = join(folder.plans, 'a.yaml')
  await missingBriefly(() => rename(a, join(folder.plans, '.a.swp')), () => rename(join(folder.plans, '.a.swp'), a))
  const text = await readFile(a, 'utf8')
  await missingBriefly(() => truncate(a), () => writeFile(a, text))
  await missingBriefly(() => rm(a), () => folder.write('b.yml', mediaPlan('studio'), apiKey('ci', 'studio')))
  t.same(notified, [])
  t.match(resources.get(STUDIO), { metadata: { uid: 'uid-1', generation: 1 } })
})

t.test('a document can move between files without being deleted, whichever file is written first', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), mediaPlan('other'))
  const { resources, syncTwice } = await openWatched(folder)
  await folder.write('b.yaml', mediaPlan('studio'))
  await syncTwice()
  t.match(warned(folder), [/b\.yaml: line 1: Plan\/acme\/studio is already declared in a\.yaml, which takes precedence/])
  await folder.write('a.yaml', mediaPlan('other'))
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.match(resources.get(STUDIO), { metadata: { uid: 'uid-1', generation: 1 } })
  await folder.write('b.yaml', mediaPlan('studio', { displayName: 'New' }))
  await syncTwice()
  t.match(resources.get(STUDIO), { metadata: { uid: 'uid-1', generation: 2 } })
})

t.test('of two documents for one resource the one in the first file by name takes precedence, and the other is reported', async (t) => {
  const folder = await openFolder(t)
  await folder.write('b.yaml', mediaPlan('studio', { displayName: 'second' }))
  await folder.write('a.yaml', mediaPlan('studio', { displayName: 'first' }), mediaPlan('studio', { displayName: 'twice' }))
  const { resources, syncTwice } = await openWatched(folder)
  t.match(resources.get(STUDIO), { spec: { displayName: 'first' } })
  t.match(warned(folder), [/a\.yaml: line 3: Plan.acme.studio is already declared in a\.yaml/, /b\.yaml: line 1: Plan.acme.studio is already declared in a\.yaml/])
  await folder.write('a.yaml', 'a: [')
  await syncTwice()
  t.match(resources.get(STUDIO), { spec: { displayName: 'first' } }, 'also while its file is broken')
})

t.test('setting the time of day makes no deletion earlier or later', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'))
  const { resources, syncTwice } = await openWatched(folder)
  const { uid } = resources.get(STUDIO)!.metadata
  await rm(join(folder.plans, 'a.yaml'))
  await syncTwice()
  folder.time.setBy += 10_000
  await syncTwice()
  await folder.write('a.yaml', mediaPlan('studio'))
  await syncTwice()
  t.equal(resources.get(STUDIO)?.metadata.uid, uid)
  await rm(join(folder.plans, 'a.yaml'))
  await syncTwice()
  folder.time.setBy -= 3_600_000
  await syncTwice(5_000)
  t.equal(resources.get(STUDIO), null)
})

t.test('a folder that cannot be read changes nothing, however long', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'))
  const { resources, syncTwice } = await openWatched(folder)
  await rename(folder.plans, `${folder.plans}.away`)
  for (let i = 0; i < 3; i++) await syncTwice(60_000)
  t.match(resources.health(), { ok: false, detail: 'the folder of manifests cannot be read (ENOENT)' })
  t.equal(folder.log.filter(({ level }) => level === 'error').length, 1)
  t.ok(resources.get(STUDIO))
  await mkdir(folder.plans)
  await syncTwice(1_900)
  t.ok(resources.get(STUDIO), 'time in which the folder was unreadable does not count')
  await rm(folder.plans, { recursive: true })
  await rename(`${folder.plans}.away`, folder.plans)
  await syncTwice(5_000)
  t.match(resources.health(), { ok: true })
  t.match(resources.get(STUDIO), { metadata: { uid: 'uid-1', generation: 1 } })
})

t.test('a file that is unreadable, too large or a dangling link keeps its last accepted documents', async (t) => {
  const folder = await openFolder(t)
  const file = join(folder.plans, 'a.yaml')
  await folder.write('a.yaml', mediaPlan('studio'))
  const { resources, syncTwice } = await openWatched(folder)
  const faults = [() => writeFile(file, `# ${'x'.repeat(1024 * 1024)}`), () => writeFile(file, Buffer.from([0xff, 0xfe, 0xfd])), () => rm(file).then(() => symlink('/nowhere', file))]
  if (process.getuid?.() !== 0) faults.unshift(() => chmod(file, 0))
  for (const act of faults) {
    await act()
    for (let i = 0; i < 3; i++) await syncTwice(5_000)
    t.ok(resources.get(STUDIO))
    t.match(resources.health().detail, /^a\.yaml: (cannot be read|larger than)/)
  }
  await rm(file)
  await writeFile(join(folder.plans, '..', 'linked.yaml'), JSON.stringify(mediaPlan('studio', { displayName: 'Linked' })))
  await symlink('../linked.yaml', file)
  await syncTwice()
  t.match(resources.get(STUDIO), { spec: { displayName: 'Linked' } }, 'a link to a file is read')
})

t.test('only a regular file is opened: a pipe, a device or a folder blocks nothing, fills no memory, and is reported', async (t) => {
  const folder = await openFolder(t)
  const file = join(folder.plans, 'a.yaml')
  await folder.write('a.yaml', mediaPlan('studio'))
  await folder.write('b.yaml', mediaPlan('other'))
  const { resources, syncTwice } = await openWatched(folder)
  const become: Record<string, [() => Promise<unknown>, RegExp]> = {
    pipe: [() => promisify(execFile)('mkfifo', [file]), /^a\.yaml: not read: it is not a regular file/],
    device: [() => symlink('/dev/zero', file), /^a\.yaml: not read: it is not a regular file/],
    folder: [() => mkdir(file), /^a\.yaml: not read: it is not a regular file/],
  }
  for (const [what, [make, detail]] of Object.entries(become)) {
    await rm(file, { recursive: true })
    await make()
    await folder.write('b.yaml', mediaPlan('other', { displayName: what }))
    for (let i = 0; i < 3; i++) await syncTwice(5_000)
    t.match(resources.health(), { ok: true, detail }, what)
    t.ok(resources.get(STUDIO), 'its last accepted document stays in force')
    t.match(resources.get(OTHER), { spec: { displayName: what } }, 'and the other files are applied')
  }
})

t.test('only manifests are read: other names, hidden files and folders are not', async (t) => {
  const folder = await openFolder(t)
  await folder.write('notes.txt', 'a: [')
  await folder.write('.hidden.yaml', 'a: [')
  await mkdir(join(folder.plans, 'old'))
  await folder.write('old/a.yaml', 'a: [')
  await folder.write('A.JSON', mediaPlan('studio'))
  await folder.write('empty.yml', '# nothing\n---\n')
  const { resources } = await openWatched(folder)
  t.ok(resources.get(STUDIO))
  t.same(resources.health(), { ok: true, detail: 'manifests loaded', refused: 0 })
})
