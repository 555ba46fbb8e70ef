import type { Test } from 'tap'
import { inPage, violations, type Dashboard } from './dashboard.ts'

/** The addresses of the pages, and a text that is there once their data is. */
export const PAGES = [
  { path: '/', has: 'Plans' },
  { path: '/keys', has: 'Use a key' },
  { path: '/usage/media', has: 'By day and kind' },
  { path: '/usage/coding', has: 'By key' },
  { path: '/room', has: 'AI Room' },
  { path: '/tasks', has: 'Created' },
] as const

export async function accessibilityTests(t: Test, dashboard: Dashboard): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await inPage(t, dashboard, `axe finds nothing on any page, in the ${colorScheme} theme`, { colorScheme }, async (page, t) => {
      for (const { path, has } of PAGES) {
        await page.goto(`${dashboard.process.url}/dashboard${path}`)
        await page.locator('main').getByText(has, { exact: true }).first().waitFor()
        t.same(await violations(page), [], path)
      }
      await page.goto(`${dashboard.process.url}/dashboard/tasks`)
      await page.getByRole('link', { name: /Harbour/ }).click()
      await page.getByText('History', { exact: true }).waitFor()
      t.same(await violations(page), [], 'a task')
      await page.goto(`${dashboard.process.url}/dashboard/keys`)
      for (const name of ['Issue a key', 'Rotate coding', 'Limit of coding', 'Revoke coding']) {
        await page.getByRole('button', { name, exact: true }).click()
        await page.getByRole('dialog').waitFor()
        t.same(await violations(page), [], `the dialog ${name}`)
        await page.keyboard.press('Escape')
      }
      await page.getByRole('button', { name: 'Sign out' }).click()
      await page.getByRole('heading', { name: 'You are signed out' }).waitFor()
      t.same(await violations(page), [], 'signed out')
      await page.goto(`${dashboard.process.url}/dashboard/sign-in`)
      t.same(await violations(page), [], 'sign-in')
    })
  }

  await inPage(t, dashboard, 'everything works by keyboard: a skip link first, dialogs keep the focus and give it back, a new page takes it', { path: '/keys' }, async (page, t) => {
    await page.getByRole('heading', { name: 'Use a key' }).waitFor()
    const focused = () => page.evaluate<string>('(document.activeElement?.getAttribute("aria-label") || document.activeElement?.textContent || "").trim()')
    await page.keyboard.press('Tab')
    t.equal(await focused(), 'Skip to content')
    t.ok(await page.evaluate('document.activeElement.getBoundingClientRect().top >= 0'), 'it is visible while it has the focus')
    await page.keyboard.press('Enter')
    t.equal(await page.evaluate('document.activeElement?.id'), 'main')
    await page.keyboard.press('Tab')
    t.equal(await focused(), 'Issue a key')
    t.not(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle'), 'none', 'the focus is visible')
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    t.equal(await page.evaluate('document.activeElement?.labels?.[0]?.textContent'), 'Name', 'a dialog begins at its first field')
    for (let presses = 0; presses < 12; presses++) {
      await page.keyboard.press('Tab')
      t.ok(await page.evaluate('document.activeElement === document.body || document.activeElement.closest("dialog") !== null'), 'the focus stays in the dialog')
    }
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    t.equal(await focused(), 'Issue a key')
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Coding usage' }).press('Enter')
    await page.getByRole('heading', { level: 1, name: 'Coding usage' }).waitFor()
    t.equal(await focused(), 'Coding usage')
    t.match(await page.title(), /^Coding usage/)
  })

  await inPage(t, dashboard, 'no page is wider than a phone of 360 pixels, and its menu opens', { viewport: { width: 360, height: 740 } }, async (page, t) => {
    for (const { path, has } of PAGES) {
      await page.goto(`${dashboard.process.url}/dashboard${path}`)
      await page.locator('main').getByText(has, { exact: true }).first().waitFor({ state: 'attached' })
      t.equal(await page.evaluate('document.documentElement.scrollWidth'), 360, path)
    }
    t.notOk(await page.getByRole('navigation', { name: 'Pages' }).isVisible())
    await page.getByRole('button', { name: 'Open the menu' }).click()
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Home' }).click()
    await page.getByRole('heading', { level: 1, name: 'Home' }).waitFor()
    t.notOk(await page.getByRole('navigation', { name: 'Pages' }).isVisible())
  })

  await inPage(t, dashboard, 'the theme follows the system until somebody chooses one, which this browser keeps; motion stops where it is not wanted', { colorScheme: 'dark', reducedMotion: 'reduce' }, async (page, t) => {
    const ground = () => page.evaluate('getComputedStyle(document.body).backgroundColor')
    const dark = await ground()
    await page.getByRole('radio', { name: 'Light' }).check({ force: true })
    const light = await ground()
    t.not(light, dark)
    await page.reload()
    await page.locator('main h1').waitFor()
    t.equal(await ground(), light)
    await page.getByRole('radio', { name: 'As the system' }).check({ force: true })
    t.equal(await ground(), dark)
    t.equal(await page.evaluate('Math.max(...document.getAnimations().map((each) => each.effect.getTiming().duration), 0) < 1'), true)
  })
}
