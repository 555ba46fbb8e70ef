/** What surrounds every page: skip link, navigation, tenant, theme, sign-out. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { outage } from './api/client.ts'
import { isActive, plans, type Product } from './api/plans.ts'
import { session, signOut, switchTenant } from './api/session.ts'
import { Button } from './components/button.tsx'
import { SelectField } from './components/field.tsx'
import { Icon, type IconName } from './components/icon.tsx'
import { Logo } from './components/logo.tsx'
import { Notice } from './components/states.tsx'
import { toastError } from './components/toasts.tsx'
import { here, hrefOf } from './router.ts'
import { setTheme, theme, type Theme } from './theme.ts'

type Item = { path: string; name: string; icon: IconName; needs?: Product[] }

const ITEMS: Item[] = [
  { path: '/', name: 'Home', icon: 'home' },
  { path: '/keys', name: 'API Keys', icon: 'key' },
  { path: '/room', name: 'AI Room', icon: 'spark', needs: ['Room', 'Media'] },
  { path: '/usage/media', name: 'Media usage', icon: 'chart', needs: ['Room', 'Media'] },
  { path: '/usage/coding', name: 'Coding usage', icon: 'code', needs: ['Coding'] },
  { path: '/tasks', name: 'Tasks', icon: 'tasks', needs: ['Room', 'Media'] },
]

export function Shell({ children }: { children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <div class="shell">
      <a class="skip-link" href="#main" onClick={() => document.getElementById('main')?.focus()}>
        Skip to content
      </a>
      <header class="topbar">
        <Brand />
        <Button
          icon={isOpen ? 'close' : 'menu'}

          look="icon-only quiet"
          aria-expanded={isOpen}
          aria-controls="sidebar"
          aria-label={isOpen ? 'Close the menu' : 'Open the menu'}
          onClick={() => setOpen(!isOpen)}
        />
      </header>
      <aside id="sidebar" class={isOpen ? 'sidebar open' : 'sidebar'} aria-label="Navigation and account">
        <Brand />
        <nav aria-label="Pages" onClick={() => setOpen(false)}>
          <ul>
            {ITEMS.map((item) => (
              <NavItem key={item.path} {...item} />
            ))}
          </ul>
        </nav>
        <Account />
      </aside>
      <Outage />
      <main id="main" class="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  )
}

/** Pages keep what they have read, so this notice is the only sign that it may be out of date. */
function Outage() {
  return (
    <div class="outage" role="status">
      {outage.value && (
        <Notice tone="warn" icon="offline" title={outage.value === 'unreachable' ? 'Connection lost' : 'The service is not available'}>
          What the page shows may be out of date. It tries again by itself.
        </Notice>
      )}
    </div>
  )
}

function Brand() {
  return (
    <a class="brand" href={hrefOf('/')}>
      <Logo />
      <span>{session.value?.brand ?? ''}</span>
    </a>
  )
}

/** A page whose product has no active plan is still reachable: it says why it is locked. */
function NavItem({ path, name, icon, needs }: Item) {
  const { path: at } = here.value
  const isCurrent = path === '/' ? at === '/' : at === path || at.startsWith(`${path}/`)
  const isLocked =
    needs !== undefined && plans.value !== null && !plans.value.some((plan) => isActive(plan) && needs.includes(plan.product))
  return (
    <li>
      <a class="nav-item" href={hrefOf(path)} {...(isCurrent ? { 'aria-current': 'page' as const } : {})}>
        <Icon name={icon} />
        <span>{name}</span>
        {isLocked && (
          <span class="nav-lock">
            <Icon name="lock" size={16} />
            <span class="visually-hidden">locked</span>
          </span>
        )}
      </a>
    </li>
  )
}

const THEMES: { value: Theme; name: string; icon: IconName }[] = [
  { value: 'light', name: 'Light', icon: 'sun' },
  { value: 'system', name: 'As the system', icon: 'device' },
  { value: 'dark', name: 'Dark', icon: 'moon' },
]

function Account() {
  const { value: known } = session
  if (!known) return null
  return (
    <div class="account">
      {known.tenants.length > 1 ? (
        <SelectField
          label="Tenant"
          value={known.tenant}
          choices={known.tenants.map((name) => ({ value: name, name }))}
          choose={(tenant) => void switchTenant(tenant).catch(toastError)}
        />
      ) : (
        <p class="tenant">
          <span class="muted">Tenant</span> <strong>{known.tenant}</strong>
        </p>
      )}
      <div class="segmented icons" role="radiogroup" aria-label="Theme">
        {THEMES.map(({ value, name, icon }) => (
          <label key={value} title={name}>
            <input type="radio" name="theme" value={value} checked={theme.value === value} onChange={() => setTheme(value)} />
            <span>
              <Icon name={icon} size={18} />
              <span class="visually-hidden">{name}</span>
            </span>
          </label>
        ))}
      </div>
      <div class="who">
        <span class="who-name" title={known.user.id}>
          {known.user.name}
        </span>
        <Button text="Sign out" icon="out" look="small quiet" onClick={() => void signOut().catch(toastError)} />
      </div>
    </div>
  )
}
