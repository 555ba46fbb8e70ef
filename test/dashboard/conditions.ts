import type { Test } from 'tap'
import { setTimeout as pause } from 'node:timers/promises'
import { chat } from '../flows/calls.ts'
import { inPage, type Dashboard } from './dashboard.ts'
import { demoKey } from './usage.ts'

/** Longer than a page waits between two reads of what changes most. */
const ANSWER_MS = 1500
const HOUR_MS = 3_600_000

export async function conditionTests(t: Test, dashboard: Dashboard): Promise<void> {
  await inPage(t, dashboard, 'over a slow network every page shows its data, though an answer takes longer than the time between two reads', {}, async (page) => {
    await page.route('**/dashboard/api/**', async (route) => {
      await pause(ANSWER_MS)
      // The page may have been left meanwhile.
      await route.continue().catch(() => {})
    })
    for (const [path, heading] of [['/keys', 'coding'], ['/tasks', 'Tasks and webhooks'], ['/usage/coding', 'Week']] as const) {
      await page.goto(`${dashboard.process.url}/dashboard${path}`)
      await page.getByRole('heading', { name: heading, exact: true }).waitFor()
      await page.locator('main .loading').first().waitFor({ state: 'detached' })
    }
    await page.unrouteAll({ behavior: 'ignoreErrors' })
  })

  await inPage(t, dashboard, 'numbers, money and times are in English as the page is, also where the browser speaks another language', { path: '/usage/coding', locale: 'de-DE' }, async (page, t) => {
    await page.locator('.fact', { hasText: 'Limit' }).getByText('5,000,000', { exact: true }).waitFor()
    await page.goto(`${dashboard.process.url}/dashboard/keys`)
    await page.locator('.fact', { hasText: 'Created' }).first().waitFor()
    t.match(await page.locator('.fact', { hasText: 'Created' }).allTextContents(), [/ago$|now$/])
  })

  for (const ms of [-HOUR_MS, HOUR_MS]) {
    await inPage(t, dashboard, `a browser whose clock is an hour ${ms < 0 ? 'slow' : 'fast'} shows the resets by the server's`, {}, async (page, t) => {
      t.equal((await chat(dashboard.process, await demoKey(dashboard, 'coding'))).status, 200)
      await page.addInitScript(`{ const real = Date.now; Date.now = () => real() + ${ms} }`)
      await page.goto(`${dashboard.process.url}/dashboard/usage/coding`)
      await page.getByText(/^Resets in (4 h|5 h ·)/).waitFor()
    })
  }
}
