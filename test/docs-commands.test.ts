/** Every block of commands in the pages for newcomers, operators and tenants is run by a test, or has a reason why it is not. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { blocksOf } from './page-blocks.ts'

const ROOT = join(import.meta.dirname, '..')
const CHART = 'test/chart/cluster.test.ts'
const PODS = 'test/pods/pods.test.ts'
const README = 'test/flows/readme.test.ts'
const OPERATIONS = 'test/flows/operations-page.test.ts'
const TENANTS = 'test/plugins/kubernetes-guide.test.ts'

/** By page and section, for each block in turn: the test that runs it as it stands, or the reason why none does. */
const RUN_BY: Record<string, Record<string, string[]>> = {
  'README.md': {
    Start: ['.ci/run installs and test/flows/npm-start.test.ts starts it, on free ports', 'it is what runs this test'],
    'One request to each product': [README, README, README],
    'A webhook': [README, README, README],
    'A real model': ['needs a model server and its key'],
    'Any other service': ['needs a service; test/plugins/proxy.test.ts has one'],
  },
  'docs/chart.md': { Install: [PODS] },
  'docs/chart-upgrades.md': {
    'Stop and upgrade': [PODS, PODS, CHART],
    'Backup and restore': [PODS],
    'Rotate the sealing key': [CHART],
    Uninstall: [CHART, CHART],
  },
  'docs/tenants.md': {
    'A plan': [TENANTS],
    'A key': [TENANTS, TENANTS, TENANTS],
    Rotate: [TENANTS],
    'Suspend, resume, revoke': [TENANTS],
    'When it is not Ready': [TENANTS],
    Delete: [TENANTS],
  },
  'docs/operations.md': {
    'Install and start': ['.ci/run installs and test/flows/npm-start.test.ts starts it, on free ports', 'its folders and its address are those of a server; test/config has the settings'],
    'As a container': ['needs Docker; test/image runs the same image, built without it'],
    Secrets: [OPERATIONS, 'its folders are those of a server; test/flows/derived-keys.test.ts runs the command'],
    'Backup and restore': [OPERATIONS],
    Verify: [OPERATIONS],
    Commands: [OPERATIONS],
    Drills: ['runs test/drills/restore.test.ts'],
    'One process per role': ['settings, not commands; test/flows/roles.test.ts runs processes with them'],
  },
  'docs/releases.md': { 'Plan and ApiKey': [CHART] },
}

for (const [page, sections] of Object.entries(RUN_BY)) {
  t.test(`each block of commands in ${page} is run by a test or has a reason`, async (t) => {
    const blocks = blocksOf(page).filter(({ language }) => language === 'sh')
    const found = Object.entries(Object.groupBy(blocks, ({ section }) => section)).map(([section, all = []]) => `${section}: ${all.length}`)
    t.same(found, Object.entries(sections).map(([section, all]) => `${section}: ${all.length}`))
    for (const test of new Set(Object.values(sections).flat())) {
      if (!test.endsWith('.test.ts') || test.includes(' ')) continue
      t.ok(existsSync(join(ROOT, test)) && readFileSync(join(ROOT, test), 'utf8').includes(page), `${test} reads ${page}`)
    }
  })
}
