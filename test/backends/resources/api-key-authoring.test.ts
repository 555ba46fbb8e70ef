/** Issuing, rotating and revoking ApiKeys in a folder of manifests, without disturbing what people write there. */
import { execFile } from 'node:child_process'
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { editSpec } from '../../../src/backends/resources/manifests/manifest-edit.ts'
import { openFolder, settle } from './manifest-folder.ts'
import { apiKey, codingPlan } from './manifests.ts'

const HEAD = 'apiVersion: tollgate.dev/v1alpha1\nkind: ApiKey\n'
const isCi = (value: unknown) => (value as { metadata?: { name?: string } } | null)?.metadata?.name === 'ci'

t.test('an edit changes one field and leaves every other byte as it is', (t) => {
  const raise = { name: 'rotationRevision', value: 1 }
  const revoke = { name: 'state', value: 'Revoked' }
  const limit = { name: 'limit', value: { weeklyTokens: 9 } }
  const rows: [what: string, field: typeof raise | typeof revoke | typeof limit, before: string, after: string][] = [
    ['an existing value', raise, 'metadata: { name: ci }\nspec:\n  rotationRevision: 0   # up to date\n  state: Active\n', 'metadata: { name: ci }\nspec:\n  rotationRevision: 1   # up to date\n  state: Active\n'],
    ['a missing value', raise, 'metadata: { name: ci }\nspec:\n    # whose\n    planRef: { name:   coder }\n', 'metadata: { name: ci }\nspec:\n    # whose\n    rotationRevision: 1\n    planRef: { name:   coder }\n'],
    ['a flow mapping', revoke, 'metadata: {name: ci}\nspec: {planRef: {name: coder}} # end', 'metadata: {name: ci}\nspec: {state: Revoked, planRef: {name: coder}} # end'],
    ['double quotes', revoke, 'metadata: {name: ci}\nspec: {"state": "Active"}\n', 'metadata: {name: ci}\nspec: {"state": "Revoked"}\n'],
    ['single quotes', revoke, "metadata: {name: ci}\nspec:\n  state: 'Active'\n", "metadata: {name: ci}\nspec:\n  state: 'Revoked'\n"],
    ['an empty value', raise, 'metadata: {name: ci}\nspec:\n  planRef: {name: coder}\n  rotationRevision:\n', 'metadata: {name: ci}\nspec:\n  planRef: {name: coder}\n  rotationRevision: 1\n'],
    ['JSON', raise, '{\n\t"metadata": {"name": "ci"},\n\t"spec": {"planRef": {"name": "coder"}}\n}', '{\n\t"metadata": {"name": "ci"},\n\t"spec": {"rotationRevision": 1, "planRef": {"name": "coder"}}\n}'],
    ['lines that end with CR LF', revoke, 'metadata: {name: ci}\r\nspec:\r\n  planRef: {name: coder}\r\n', 'metadata: {name: ci}\r\nspec:\r\n  state: Revoked\r\n  planRef: {name: coder}\r\n'],
    ['another document', raise, '# first\nmetadata: {name: other}\nspec: {rotationRevision: 4}\n---\n# ours\nmetadata: {name: ci}\nspec:\n  rotationRevision: 0\n...\n---\nmetadata: {name: third}\n', '# first\nmetadata: {name: other}\nspec: {rotationRevision: 4}\n---\n# ours\nmetadata: {name: ci}\nspec:\n  rotationRevision: 1\n...\n---\nmetadata: {name: third}\n'],
    ['a missing mapping', limit, 'metadata: {name: ci}\nspec:\n  planRef: {name: coder}\n', 'metadata: {name: ci}\nspec:\n  limit: {"weeklyTokens":9}\n  planRef: {name: coder}\n'],
    ['a mapping in braces', limit, 'metadata: {name: ci}\nspec:\n  limit: { weeklyTokens: 5 } # half\n  state: Active\n', 'metadata: {name: ci}\nspec:\n  limit: {"weeklyTokens":9} # half\n  state: Active\n'],
    ['a mapping in lines', limit, 'metadata: {name: ci}\nspec:\n  limit:\n    weeklyTokens: 5\n  state: Active\n', 'metadata: {name: ci}\nspec:\n  limit:\n    {"weeklyTokens":9}\n  state: Active\n'],
    ['an alias of something else', revoke, 'x: &s Active\nmetadata: {name: ci}\nspec:\n  state: *s\n', 'x: &s Active\nmetadata: {name: ci}\nspec:\n  state: Revoked\n'],
  ]
  for (const [what, field, before, after] of rows) {
    t.match(editSpec(before, isCi, field), { outcome: 'edited', document: { metadata: { name: 'ci' }, spec: { [field.name]: field.value } } }, what)
    t.equal((editSpec(before, isCi, field) as { text?: string }).text, after, what)
  }
  const removed = (text: string) => editSpec(text, isCi, { name: 'limit', value: null })
  for (const spec of ['  limit: { weeklyTokens: 5 } # half\n', '  limit:\n    weeklyTokens: 5\n']) {
    for (const [first, last] of [['  state: Active\n', ''], ['', '  state: Active # here\n']]) {
      t.match(removed(`metadata: {name: ci}\nspec:\n${first}${spec}${last}`), { outcome: 'edited', text: `metadata: {name: ci}\nspec:\n${first}${last}` }, 'a mapping that is removed')
    }
  }
  t.match(removed('metadata: {name: ci}\nspec: {state: Active}\n'), { outcome: 'unchanged' })
  for (const spec of ['{limit: {weeklyTokens: 5}, state: Active}', '{state: Active, limit: {weeklyTokens: 5}}']) {
    t.match(removed(`metadata: {name: ci}\nspec: ${spec}\n`), { text: 'metadata: {name: ci}\nspec: {state: Active}\n' }, spec)
  }
  t.same(editSpec('metadata: {name: ci}\nspec: {state: Revoked}\n', isCi, revoke), { outcome: 'unchanged', document: { metadata: { name: 'ci' }, spec: { state: 'Revoked' } } })
  const impossible = ['metadata: {name: other}\nspec: {state: Active}\n', 'metadata: {name: ci}\nspec: &a\n  state: &s Active\nx: *s\n', 'y: &a {state: Active}\nmetadata: {name: ci}\nspec: *a\n', '']
  for (const text of impossible) t.same(editSpec(text, isCi, revoke), { outcome: 'impossible' }, text)
  t.end()
})

t.test('in a folder with as many files as are read no key is issued: the last of them, perhaps of another tenant, would be read no more', async (t) => {
  const folder = await openFolder(t)
  const resources = await folder.open()
  await Promise.all(Array.from({ length: 5000 }, (_, n) => folder.write(`z${n}.yaml`, '')))
  t.same(await resources.issueKey({ namespace: 'acme', name: 'web', spec: { planRef: { name: 'coder' } } }), { outcome: 'full' })
  t.equal((await readdir(folder.plans)).length, 5000)
})

t.test('an issued key has a file of its own and replaces no other file', async (t) => {
  const folder = await openFolder(t)
  await folder.write('apikey.acme.web.yaml', codingPlan('coder'))
  const resources = await folder.open()
  await resources.watch(() => {})
  t.same(await resources.issueKey({ namespace: 'acme', name: 'web', spec: { planRef: { name: 'coder' } } }), { outcome: 'created' })
  t.same((await readdir(folder.plans)).sort(), ['apikey.acme.web.2.yaml', 'apikey.acme.web.yaml'])
  t.equal(await readFile(join(folder.plans, 'apikey.acme.web.2.yaml'), 'utf8'), `${HEAD}metadata:\n  name: web\n  namespace: acme\nspec:\n  planRef:\n    name: coder\n`)
  t.ok(resources.get({ kind: 'ApiKey', namespace: 'acme', name: 'web' }), 'it is declared when issueKey resolves')
})

t.test('a name that YAML would read as another type is quoted', async (t) => {
  const folder = await openFolder(t)
  const resources = await folder.open()
  await resources.watch(() => {})
  t.same(await resources.issueKey({ namespace: '0600', name: 'no', spec: { planRef: { name: 'y' } } }), { outcome: 'created' })
  t.match(resources.get({ kind: 'ApiKey', namespace: '0600', name: 'no' }), { spec: { planRef: { name: 'y' } } })
})

t.test('a manifest behind a link keeps its path and its mode', async (t) => {
  const folder = await openFolder(t)
  const elsewhere = join(folder.plans, '..', 'elsewhere')
  await mkdir(elsewhere)
  await folder.write('a.yaml', `# by hand\n${HEAD}metadata: {name: ci, namespace: acme}\nspec:\n  planRef: {name: coder}\n`)
  await rename(join(folder.plans, 'a.yaml'), join(elsewhere, 'real'))
  await chmod(join(elsewhere, 'real'), 0o640)
  await symlink(join(elsewhere, 'real'), join(folder.plans, 'a.yaml'))
  const resources = await folder.open()
  await resources.watch(() => {})
  t.same(await resources.changeKey({ namespace: 'acme', name: 'ci' }, { rotationRevision: 1 }), { outcome: 'changed' })
  t.ok((await lstat(join(folder.plans, 'a.yaml'))).isSymbolicLink())
  t.equal((await lstat(join(elsewhere, 'real'))).mode & 0o777, 0o640)
  t.match(await readFile(join(elsewhere, 'real'), 'utf8'), /^# by hand\n[^]*\n {2}rotationRevision: 1\n {2}planRef: \{name: coder\}\n$/)
  t.same(await readdir(elsewhere), ['real'])
})

t.test('a key whose manifest is broken or uses a referenced anchor is not changed', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', apiKey('ci', 'coder'))
  await folder.write('b.yaml', `${HEAD}metadata: {name: web, namespace: acme}\nspec: {planRef: {name: coder}, state: &s Active}\n---\nx: 1\n`)
  const resources = await folder.open()
  await resources.watch(() => {})
  await writeFile(join(folder.plans, 'a.yaml'), 'half a {')
  await settle(resources, folder)
  t.match(await resources.changeKey({ namespace: 'acme', name: 'ci' }, { rotationRevision: 1 }), { outcome: 'refused', faults: [/only the author of the manifest/] })
  t.equal(await readFile(join(folder.plans, 'a.yaml'), 'utf8'), 'half a {')
  await rm(join(folder.plans, 'a.yaml'))
  await promisify(execFile)('mkfifo', [join(folder.plans, 'a.yaml')])
  await settle(resources, folder)
  t.match(await resources.changeKey({ namespace: 'acme', name: 'ci' }, { rotationRevision: 1 }), { outcome: 'refused', faults: [/only the author of the manifest/] }, 'a pipe does not block it')
  t.match(await resources.changeKey({ namespace: 'acme', name: 'web' }, { state: 'Revoked' }), { outcome: 'changed' }, 'an unreferenced anchor stays')
  t.match(await readFile(join(folder.plans, 'b.yaml'), 'utf8'), /state: &s Revoked/)
})

t.test('a change is refused while the manifest has another fault, since its last accepted spec stays in force', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', apiKey('ci', 'coder'))
  const resources = await folder.open()
  await resources.watch(() => {})
  const invalid = `${HEAD}metadata: {name: ci, namespace: acme}\nspec: {planRef: {name: coder}, expirationTime: soon}\n`
  await writeFile(join(folder.plans, 'a.yaml'), invalid)
  await settle(resources, folder)
  t.match(await resources.changeKey({ namespace: 'acme', name: 'ci' }, { state: 'Revoked' }), { outcome: 'refused', faults: [/^spec\.expirationTime: /] })
  t.match(resources.get({ kind: 'ApiKey', namespace: 'acme', name: 'ci' }), { spec: { state: 'Active' } })
  t.equal(await readFile(join(folder.plans, 'a.yaml'), 'utf8'), invalid)
})

// Root ignores file modes.
if (process.getuid?.() !== 0) {
  t.test('a read-only folder is an outcome: forbidden', async (t) => {
    const folder = await openFolder(t)
    await folder.write('a.yaml', apiKey('ci', 'coder'))
    const resources = await folder.open()
    await resources.watch(() => {})
    await chmod(folder.plans, 0o500)
    t.teardown(() => chmod(folder.plans, 0o700))
    t.same(await resources.issueKey({ namespace: 'acme', name: 'web', spec: { planRef: { name: 'coder' } } }), { outcome: 'forbidden' })
    t.same(await resources.changeKey({ namespace: 'acme', name: 'ci' }, { rotationRevision: 1 }), { outcome: 'forbidden' })
  })
}
