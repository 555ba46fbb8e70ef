/** The dashboard in a browser: from the start to the first image, each page from an empty cache, and a plan that is suspended while its key is shown. Needs Chromium (`npm run servers chromium`). */
import { cp, readFile, writeFile } from 'node:fs/promises'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { chromium, type Browser, type Page } from 'playwright-core'
import { REPOSITORY, startProcess, type Process } from '../test/flows/program.ts'
import { installed } from '../test/servers/client.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

/** Each page, and a text of it that needs its data. */
const PAGES = { '/': 'Studio', '/keys': 'Use a key', '/usage/media': 'By key', '/usage/coding': 'Begins with the next request', '/room': 'Your result appears here', '/tasks': 'No tasks yet' }
const LONGEST_MS = 600_000

type Measure = <T>(what: string, work: () => T | Promise<T>) => Promise<T>

export async function dashboard(stage: Stage, { rounds }: { rounds: number }): Promise<Table[]> {
  const times = new Map<string, number[]>()
  const measure: Measure = async (what, work) => {
    const beganMs = performance.now()
    const done = await work()
    times.set(what, [...(times.get(what) ?? []), performance.now() - beganMs])
    return done
  }
  const browser = await chromium.launch({ executablePath: installed('chromium'), args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] })
  try {
    for (let round = 0; round < rounds; round++) await newcomer(join(stage.folder, `dashboard-${round}`), browser, measure)
  } finally {
    await browser.close()
  }
  const rows = [...times].map(([what, all]) => [what, (median(all) / 1000).toFixed(2), spread(all.map((ms) => ms / 1000), 2)])
  return [{ title: 'The dashboard in Chromium, on loopback', head: ['', 'seconds', 'by round'], rows, note: `Load average of the machine: ${loadavg().map((load) => load.toFixed(1)).join(', ')}.` }]
}

/** One person with an empty data folder. */
async function newcomer(folder: string, browser: Browser, measure: Measure): Promise<void> {
  await cp(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const program = await measure('start to the link', () => startProcess({ folder }))
  const context = await browser.newContext({ locale: 'en-US' })
  try {
    const page = await context.newPage()
    page.setDefaultTimeout(LONGEST_MS)
    await measure('link to Home', async () => {
      await page.goto(linkOf(program))
      await page.getByText('Studio').first().waitFor()
    })
    const storageState = await context.storageState()
    for (const [path, text] of Object.entries(PAGES)) {
      const cold = await (await browser.newContext({ locale: 'en-US', storageState })).newPage()
      await measure(`${path}, empty cache`, async () => {
        await cold.goto(`${program.url}/dashboard${path}`)
        await cold.locator('main').getByText(text).first().waitFor()
      })
      await cold.context().close()
    }
    await measure('AI Room to the image', () => makeImage(page, program))
    await suspend(page, program, folder, measure)
  } finally {
    await context.close()
    await program.stop()
  }
}

function linkOf({ log }: Process): string {
  return log.flatMap((line) => line.match(/http:\/\/[^"\s]+\/dashboard\/sign-in\?token=[\w-]+/g) ?? []).at(-1) ?? ''
}

async function makeImage(page: Page, { url }: Process): Promise<void> {
  await page.goto(`${url}/dashboard/room`)
  await page.getByRole('textbox', { name: 'Prompt' }).fill('A lighthouse by the sea at dawn')
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  await page.locator('.room-stage img').waitFor()
}

/** A plan is suspended in its manifest while its key is revealed. */
async function suspend(page: Page, { url }: Process, folder: string, measure: Measure): Promise<void> {
  await page.goto(`${url}/dashboard/keys`)
  await page.getByRole('button', { name: 'Reveal media' }).click()
  await page.locator('.secret code', { hasText: /svc_live_\w{20}/ }).waitFor()
  const manifest = join(folder, 'plans/demo.yaml')
  const text = await readFile(manifest, 'utf8')
  await measure('plan suspended, to its key gone from the page', async () => {
    await writeFile(manifest, text.replace('state: Active # Try Suspended', 'state: Suspended # Try Suspended'))
    await page.getByRole('heading', { name: 'media', exact: true }).waitFor({ state: 'detached' })
  })
  await page.getByText('Studio is locked').waitFor()
}
