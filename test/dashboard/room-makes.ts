import { readFile } from 'node:fs/promises'
import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { inPage, until, violations, type Dashboard } from './dashboard.ts'
import { appears, choose, done, make, press, prompt, read, tasks } from './room-page.ts'

const HOSTILE = `Harbour <img src=x onerror="alert('prompt')"><script>alert('prompt')</script>`

/** Makes a small image without the form. */
async function createImage(page: Page, prompt: string): Promise<void> {
  const url = new URL('/dashboard/api/media/generations', page.url()).href
  await page.request.post(url, { headers: { 'x-tollgate-csrf': '1', prefer: 'wait=60' }, data: { kind: 'image', prompt, size: '256x256' } })
}

export async function makeTests(t: Test, dashboard: Dashboard): Promise<void> {
  await inPage(t, dashboard, 'the price comes before spending, progress is shown, and the download has the bytes of the result', { path: '/room' }, async (page, t) => {
    await page.getByText('Nothing here yet').waitFor()
    t.equal(await page.getByRole('button', { name: 'Create' }).isDisabled(), true)
    await prompt(page).fill('A lighthouse by the sea at dawn')
    await page.locator('.price', { hasText: '0.04 credits of 100.00 credits left' }).waitFor()
    t.same(await tasks(page, 'generations'), [], 'a quote makes nothing')
    const underway = appears(page, '.underway progress')
    await press(page, 'Create')
    await underway
    const url = await done(page)
    await page.locator('.price', { hasText: '99.96 credits left' }).waitFor()
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download', exact: true }).click()])
    t.match(download.suggestedFilename(), /^image-[0-9a-f]{8}\.png$/)
    const bytes = await readFile(await download.path())
    t.same(bytes, await (await page.request.get(url)).body())
    t.same(bytes.subarray(1, 4).toString(), 'PNG')
    const saved = page.locator('.gallery-item').getByRole('link', { name: 'Download: A lighthouse by the sea at dawn' })
    t.match(await saved.getAttribute('href'), /&name=image-[0-9a-f]{8}$/, 'the gallery has it too')
    t.equal(await page.locator('.gallery-item').count(), 1)
    await page.getByRole('link', { name: 'Home' }).click()
    await page.getByRole('heading', { name: 'Make an image (done)' }).waitFor()
    await page.getByRole('heading', { name: 'Connect your tools', exact: true }).waitFor()
  })

  await inPage(t, dashboard, 'markup in a prompt stays text, on the stage and in the gallery', { path: '/room' }, async (page, t) => {
    await make(page, HOSTILE)
    await page.locator('.gallery-item', { hasText: HOSTILE }).waitFor()
    t.equal(await page.locator('main img[src="x"]').count(), 0)
    await page.reload()
    await page.locator('.gallery-item', { hasText: HOSTILE }).getByRole('button', { name: /^Show/ }).click()
    await page.locator('.room-stage h2', { hasText: HOSTILE }).waitFor()
    await page.getByRole('button', { name: 'Reuse prompt' }).click()
    t.equal(await prompt(page).inputValue(), HOSTILE)
  })

  await inPage(t, dashboard, 'a task can be canceled while it waits, and nothing is charged', { path: '/room' }, async (page, t) => {
    await choose(page, 'Music')
    await prompt(page).fill('Waves under a full moon')
    await page.getByLabel('Length').fill('10')
    await page.locator('.price', { hasText: '0.10 credits' }).waitFor()
    await press(page, 'Create')
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByText('You canceled it.').waitFor()
    await page.getByText('Nothing was charged: 0.10 credits went back to your allowance.').waitFor()
    const [task] = await tasks(page, 'generations')
    t.match(task, { kind: 'music', status: 'canceled', actual_cost: '0.0000' })
  })

  await inPage(t, dashboard, 'an image is made by keyboard alone', { path: '/room' }, async (page, t) => {
    await prompt(page).focus()
    await page.keyboard.type('A red balloon over snowy mountains')
    await page.locator('.price[data-state="quoted"]').waitFor()
    await page.keyboard.press('Control+Enter')
    await done(page)
    t.match(await page.locator('.room-stage h2').textContent(), 'A red balloon')
  })

  await inPage(t, dashboard, 'a reload keeps what was typed, and the task under way on its stage to its end; sign-out forgets it', { path: '/room' }, async (page, t) => {
    await choose(page, 'Video')
    await prompt(page).fill('A train through autumn hills')
    await page.getByLabel('Length').fill('2')
    await press(page, 'Create')
    await page.locator('.underway').waitFor()
    await prompt(page).fill('Half of a thought')
    await page.reload()
    t.equal(await prompt(page).inputValue(), 'Half of a thought')
    await page.locator('.room-stage h2', { hasText: 'A train through autumn hills' }).or(page.locator('.underway')).first().waitFor()
    await page.locator('.gallery-item', { hasText: 'A train through autumn hills' }).waitFor()
    t.equal(await page.locator('.running-item').count(), 0)
    await done(page)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor()
    t.notOk(await page.evaluate('JSON.stringify(localStorage).includes("Half of a thought")'), 'sign-out leaves nothing of it')
  })

  await inPage(t, dashboard, 'two tabs keep a form each, a new one begins with the latest, and sign-out in one empties all', { path: '/room' }, async (page, t) => {
    await prompt(page).fill('Typed in the first')
    const second = await page.context().newPage()
    await second.goto(page.url())
    t.equal(await prompt(second).inputValue(), 'Typed in the first')
    await prompt(second).fill('Typed in the second')
    await page.reload()
    t.equal(await prompt(page).inputValue(), 'Typed in the first', 'the second tab has overwritten nothing')
    const third = await page.context().newPage()
    await third.goto(page.url())
    t.equal(await prompt(third).inputValue(), 'Typed in the second', 'the tab that was loaded last is not the one that was typed in last')
    await third.close()
    await second.reload()
    t.equal(await prompt(second).inputValue(), 'Typed in the second')
    await second.getByRole('button', { name: 'Sign out' }).click()
    await second.getByRole('heading', { name: 'You are signed out' }).waitFor()
    const kept = () => page.evaluate<boolean>('JSON.stringify([localStorage, sessionStorage]).includes("Typed")')
    await until('the first tab has forgotten it', async () => !(await kept()))
  })

  await inPage(t, dashboard, 'a gallery of which older results are shown keeps them when a task ends', { path: '/room' }, async (page, t) => {
    const shown = page.locator('.gallery-item')
    await shown.first().waitFor()
    for (let n = await shown.count(); n < 13; n++) await createImage(page, `Number ${n}`)
    await page.reload()
    await page.getByRole('button', { name: 'Show older' }).click()
    await shown.nth(12).waitFor()
    const before = await shown.count()
    await make(page, 'One more')
    await shown.nth(before).waitFor()
    t.match(await shown.first().textContent(), /One more/)
  })

  await inPage(t, dashboard, 'a tenant with a Coding plan alone finds the room locked, and nothing of the first', { path: '/room' }, async (page, t) => {
    const [task] = await tasks(page, 'generations')
    await page.getByLabel('Tenant').selectOption('research')
    await page.getByText('The AI Room is locked').waitFor()
    t.equal(await page.locator('.gallery-item').count(), 0)
    t.match(await read(page, `/dashboard/api/media/generations/${task?.['id']}`), { status: 403, body: { error: { code: 'plan_not_allowed' } } })
    t.same(await violations(page), [], 'locked')
  })

  for (const colorScheme of ['light', 'dark'] as const) {
    await inPage(t, dashboard, `axe finds nothing while a task runs, ends or is edited, in the ${colorScheme} theme`, { path: '/room', colorScheme, reducedMotion: 'reduce' }, async (page, t) => {
      await choose(page, 'Music')
      await prompt(page).fill('Snow over a small town')
      await page.getByRole('button', { name: 'More settings' }).click()
      await press(page, 'Create')
      await page.locator('.underway').waitFor()
      t.same(await violations(page), [], 'under way')
      await page.getByRole('button', { name: 'Cancel' }).click()
      await page.getByText('You canceled it.').waitFor()
      t.same(await violations(page), [], 'canceled')
      await page.locator('.gallery-item').first().getByRole('button', { name: /^Use as input/ }).click()
      await page.getByText('Choose another file').waitFor()
      t.same(await violations(page), [], 'editing')
      await page.locator('.gallery-item').first().getByRole('button', { name: /^Delete/ }).click()
      await page.getByRole('dialog').waitFor()
      t.same(await violations(page), [], 'deleting')
    })
  }

  await inPage(t, dashboard, 'the room fits a phone of 360 pixels', { path: '/room', viewport: { width: 360, height: 740 } }, async (page, t) => {
    await page.locator('.gallery-item').first().waitFor()
    t.equal(await page.evaluate('document.documentElement.scrollWidth'), 360)
    await page.locator('.gallery-item').first().getByRole('button', { name: /^Use as input/ }).click()
    await page.getByText('Choose another file').waitFor()
    t.equal(await page.evaluate('document.documentElement.scrollWidth'), 360)
  })
}
