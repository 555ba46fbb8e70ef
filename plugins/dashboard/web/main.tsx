import { render } from 'preact'
import { App } from './app.tsx'
import { keepFocus } from './focus-keeper.ts'
import { applyTheme } from './theme.ts'
// In the order of the cascade; a component's or page's sheet has its name.
import './styles/tokens.css'
import './styles/base.css'
import './styles/shell.css'
import './styles/tones.css'
import './components/card.css'
import './components/button.css'
import './components/field.css'
import './components/gauge.css'
import './components/table.css'
import './components/states.css'
import './components/dialog.css'
import './components/toasts.css'
import './components/copy.css'
import './pages/home/home.css'
import './pages/keys/keys.css'
import './pages/usage/usage.css'
import './pages/tasks/tasks.css'

applyTheme()
keepFocus()
const root = document.getElementById('app')
if (root) render(<App />, root)
