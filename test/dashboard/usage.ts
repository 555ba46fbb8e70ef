import type { Test } from 'tap'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { chat } from '../flows/calls.ts'
import { eventually } from '../flows/eventually.ts'
import { inPage, type Dashboard, type Program } from './dashboard.ts'

/** A key of the demo tenant, as its owner reads it. */
export function demoKey({ process: { env } }: Program, name: 'coding' | 'media'): Promise<string> {
  return eventually(`the key ${name}`, () => readFile(join(env['DATA_DIR'] ?? '', `secrets/demo/demo-${name}-key/api-key`), 'utf8').catch(() => null))
}

export async function usageTests(t: Test, dashboard: Dashboard): Promise<void> {
  await inPage(t, dashboard, 'coding usage moves while the page is open: both gauges, the chart, its table, the key, and the CSV', { path: '/usage/coding' }, async (page, t) => {
    await page.getByText('Begins with the next request').first().waitFor()
    t.equal((await chat(dashboard.process, await demoKey(dashboard, 'coding'))).status, 200)
    await page.getByText(/^Resets in/).first().waitFor()
    t.match(await page.getByText(/^Resets in/).allTextContents(), [/(4 h 5\d min|5 h) · \w+ \d/, /(6 d 23 h|7 d) · \w+ \d/], 'each window says when it resets, as a span and as a date')
    t.equal(await page.getByRole('meter', { name: /tokens used/ }).count(), 2)
    await page.getByRole('img', { name: /Tokens by day/ }).locator('i').first().waitFor()
    await page.getByText('Show as a table').click()
    const today = page.getByRole('table', { name: 'Requests, tokens and refusals by day' }).locator('tbody tr').first()
    await today.waitFor()
    t.match(await today.locator('td').allTextContents(), [/20\d\d/, /^1$/, /^\d+$/], 'the table has the same numbers')
    await page.getByLabel('Share of coding').waitFor()
    const logged = page.getByRole('table', { name: 'Coding requests, newest first' }).locator('tbody tr').first()
    await logged.waitFor()
    t.match(await logged.locator('td').allTextContents(), [/20\d\d/, 'coding', 'Completed', /^\d+$/, '0', /^\d+$/, /^\d+$/, /^\d+(\.\d)? m?s$/])
    const requestsOf = async (key: string) => (await (await page.request.get(`${dashboard.process.url}/dashboard/api/usage/coding/requests?key=${key}`)).json()).data.length
    t.same([await requestsOf('coding'), await requestsOf('robot')], [1, 0], 'by key')
    const [list] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Requests as CSV' }).click()])
    t.match(await readFile(await list.path(), 'utf8'), /^time,key,input,cached_input,output,charged,outcome,status,duration_ms,id\r\n20\d\d-[^,]+,coding,\d+,0,\d+,\d+,completed,200,\d+,/)
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'CSV', exact: true }).click()])
    t.match(await readFile(await download.path(), 'utf8'), /^date,requests,input,cached_input,output,charged,refusals\r\n\d{4}-\d\d-\d\d,1,/)
  })

  await inPage(t, dashboard, 'requests that the plan refused are shown by reason and by key', { path: '/usage/coding' }, async (page, t) => {
    await page.getByLabel('Tenant').selectOption('research')
    await page.getByText('Begins with the next request').first().waitFor()
    t.equal(await page.getByRole('heading', { name: 'Refused requests' }).count(), 0)
    const revealed = await page.request.post(`${dashboard.process.url}/dashboard/api/keys/secret-project/reveal`, { headers: { 'x-tollgate-csrf': '1' } })
    const { key } = (await revealed.json()) as { key: string }
    t.equal((await chat(dashboard.process, key, 'hi '.repeat(800))).status, 200)
    const session = page.locator('.card', { has: page.getByRole('heading', { name: 'Session' }) }).locator('.fact')
    await session.filter({ hasText: /^Remaining0$/ }).waitFor()
    await session.filter({ hasText: /^Reserved0$/ }).waitFor()
    t.equal((await chat(dashboard.process, key)).status, 429)
    const row = page.getByRole('table', { name: 'Refused requests by reason' }).locator('tbody tr')
    await row.waitFor()
    t.match(await row.locator('td').allTextContents(), [/^Session used up/, 'session_limit_reached', '1', /20\d\d/])
    await page.getByText('secret-project · 1 refused').waitFor()
  })

  await inPage(t, dashboard, 'media usage shows what a task has cost, by kind and by key', { path: '/usage/media' }, async (page, t) => {
    await page.getByText('Nothing made yet').waitFor()
    const made = await fetch(`${dashboard.process.url}/api/v1/generations`, {
      method: 'POST',
      headers: { authorization: `Bearer ${await demoKey(dashboard, 'media')}`, 'content-type': 'application/json', prefer: 'wait=60' },
      body: JSON.stringify({ kind: 'image', prompt: "A quay <img src=x onerror=alert('prompt')>", size: '256x256', metadata: { "<script>alert('name')</script>": "<svg onload=alert('value')>" } }),
    })
    t.equal(made.status, 200)
    await page.getByRole('img', { name: /Amount spent/ }).locator('i').first().waitFor()
    t.ok(await page.evaluate('((bar) => bar.getBoundingClientRect().height > 0.99 * bar.closest(".chart-plot").getBoundingClientRect().height)(document.querySelector(".chart-stack i"))'), 'the only kind of the only day fills the axis, also where it is below one')
    await page.locator('.fact', { hasText: 'Spent' }).getByText('0.04').waitFor()
    await page.getByText('Show as a table').click()
    const today = page.getByRole('table', { name: /Amount spent/ }).locator('tbody tr').first()
    await today.waitFor()
    t.match(await today.locator('td').allTextContents(), [/20\d\d/, /^Image$/, /^1$/, /^0.04 credits$/])
    await page.getByLabel('Share of media').waitFor()
    const byTask = page.getByRole('table', { name: 'Tasks, newest first' }).locator('tbody tr')
    await byTask.getByText('Completed').waitFor()
    t.match(await byTask.locator('td').allTextContents(), [/^ImageA quay/, 'Completed', 'none', '0.04 credits', /ago|just now/])
    await page.getByLabel('Kind', { exact: true }).selectOption('trim')
    await page.getByText('No task matches the filters').waitFor()
    await page.getByRole('radio', { name: '90 days' }).check({ force: true })
    t.match(page.url(), /days=90/)
    await page.reload()
    t.ok(await page.getByRole('radio', { name: '90 days' }).isChecked())
    t.match(await page.getByRole('link', { name: 'CSV', exact: true }).getAttribute('href'), /since=20\d\d-\d\d-\d\d&tenant=demo$/)
  })

  await inPage(t, dashboard, 'use above the limit of the week is stated as such, whether requests or an edit of the plan caused it', { path: '/usage/coding' }, async (page, t) => {
    await page.route('**/dashboard/api/usage/coding?*', async (route) => {
      await route.fulfill({ json: { ...(await (await route.fetch()).json()), overshoot: 3_000_000 } })
    })
    await page.reload()
    await page.getByText("This week's use is 3,000,000 tokens above its present limit.").waitFor()
    t.match(await page.getByRole('link', { name: 'Requests as CSV' }).getAttribute('href'), /tenant=demo$/)
  })

  await inPage(t, dashboard, 'a day is the same one in the far east, and what was passed through has a look of its own', { path: '/usage/media', timezoneId: 'Pacific/Kiritimati' }, async (page, t) => {
    let date = ''
    await page.route('**/dashboard/api/usage/media?*', async (route) => {
      const usage = await (await route.fetch()).json()
      const used = { count: 1, burned: '1.00' }
      date = usage.days.at(-1).date
      await route.fulfill({ json: { ...usage, days: [{ date, by: { image: used, 'pass-through': used } }] } })
    })
    await page.reload()
    await page.locator('.chart-stack i').nth(1).waitFor()
    t.same(new Set(await page.evaluate<string[]>('[...document.querySelectorAll(".chart-stack i")].map((bar) => getComputedStyle(bar).backgroundColor)')).size, 2)
    await page.getByText('Show as a table').click()
    const day = new Intl.DateTimeFormat('en-US', { dateStyle: 'medium', timeZone: 'UTC' }).format(new Date(date))
    t.equal(await page.getByRole('table', { name: /Amount spent/ }).locator('td').first().textContent(), day)
    await page.locator('.chart-day').last().hover()
    await page.locator('.chart-shown', { hasText: day }).waitFor()
  })
}
