// A React app whose users sign in at the gateway's login page, and a model call in the user's name.
import { createWebLogin, SignIn, TownhallProvider, useClient, UserButton, useUser } from '@townhall/react';
import { useState } from 'react';
import { createRoot } from 'react-dom/client';

// Outside the components: one login for the whole app.
const login = createWebLogin({ baseUrl: 'http://127.0.0.1:43127', bureauId: 'local' });

function App() {
  const { status, user, error, endReason } = useUser();
  if (status === 'loading') return <p>One moment</p>;
  if (user === null)
    return (
      <main>
        {error && <p role="alert">{error.message}</p>}
        {endReason && <p role="status">Your session is over. Sign in to continue here.</p>}
        <SignIn /> <SignIn screen="register" />
      </main>
    );
  return (
    <main>
      <UserButton />
      <p>Hello {user.display_name ?? user.email}</p>
      <Question />
    </main>
  );
}

function Question() {
  const client = useClient();
  const [text, setText] = useState('');
  async function ask() {
    const answer = await client.ai.generateText({ model: 'local/echo', prompt: 'Good morning' });
    setText(answer.parts.map((part) => (part.type === 'text' ? part.text : '')).join(''));
  }
  return (
    <p>
      <button onClick={() => void ask()}>Ask</button> {text}
    </p>
  );
}

const root = createRoot(document.body.appendChild(document.createElement('div')));
root.render(
  <TownhallProvider login={login}>
    <App />
  </TownhallProvider>,
);
