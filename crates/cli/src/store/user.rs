//! `highwire store user`: the file of users.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use highwire_store::{Role, UserLimits, Users};
use serde_json::json;

use crate::console::Console;
use crate::failure::usage;

/// Options of `highwire store user`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add a user, or give one that is there another role, password and limits.
    Add(Add),
    /// List the users.
    List(List),
    /// Take a user away. Its connections may do nothing more.
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The file of users. It is made if it is not there, and nobody else may read it.
    #[arg(long, default_value = "users.toml", env = "HIGHWIRE_STORE_USERS", value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The user's name. A Redis client that gives only a password is the user `default`.
    name: String,
    /// What the user may do: read, write or admin.
    #[arg(long)]
    role: Role,
    /// At most so many connections of the user at a time, at each node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// At most so many commands of the user in a second, at each node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The user's name.
    name: String,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Add(args) => add(args),
        Command::List(args) => list(args),
        Command::Remove(args) => remove(args),
    }
}

fn add(args: &Add) -> Result<ExitCode> {
    let password = password()?;
    let limits = UserLimits { connections: args.connections.map(|most| most as usize), rate: args.rate };
    let is_new =
        Users::edit(&args.place.file, |users| users.add(&args.name, args.role, password.as_bytes(), limits))
            .map_err(|error| usage(error.to_string()))?;
    let what = if is_new { "is a user now" } else { "has been changed" };
    let mut console = Console::new();
    console.line(format_args!(
        "{}: {} {what}, with the role {}",
        args.place.file.display(),
        args.name,
        args.role
    ))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &List) -> Result<ExitCode> {
    let users = Users::load(&args.place.file).map_err(|error| anyhow!(error))?;
    let mut console = Console::new();
    if args.json {
        let user = |user: &highwire_store::User| {
            let UserLimits { connections, rate } = user.limits();
            json!({ "name": user.name(), "role": user.role(), "connections": connections, "rate": rate })
        };
        console.json(&users.iter().map(user).collect::<serde_json::Value>())?;
    } else {
        for user in users.iter() {
            let UserLimits { connections, rate } = user.limits();
            let connections =
                connections.map(|most| format!(", at most {most} connections")).unwrap_or_default();
            let rate = rate.map(|most| format!(", at most {most} commands in a second")).unwrap_or_default();
            console.line(format_args!("{}: {}{connections}{rate}", user.name(), user.role()))?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn remove(args: &Remove) -> Result<ExitCode> {
    let path = &args.place.file;
    // Reading it first makes no file where there is none.
    Users::load(path).map_err(|error| anyhow!(error))?;
    let was_there =
        Users::edit(path, |users| Ok(users.remove(&args.name))).map_err(|error| anyhow!(error))?;
    if !was_there {
        bail!("{} has no user `{}`", path.display(), args.name);
    }
    let mut console = Console::new();
    console.line(format_args!("{}: {} is no user any more", path.display(), args.name))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the standard input. A terminal does not show what is typed.
fn password() -> Result<String> {
    let stdin = std::io::stdin();
    let hidden = stdin.is_terminal().then(Hidden::begin).transpose()?;
    if hidden.is_some() {
        write!(std::io::stderr(), "password: ")?;
    }
    let mut line = String::new();
    stdin.lock().read_line(&mut line).context("the password, from the standard input")?;
    if hidden.is_some() {
        writeln!(std::io::stderr())?;
    }
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(usage("the password is one line of the standard input, and there is none"));
    }
    Ok(password.to_string())
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn begin() -> Result<Hidden> {
        let before = rustix::termios::tcgetattr(std::io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(rustix::termios::LocalModes::ECHO);
        rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, &quiet)?;
        Ok(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, &self.0);
    }
}
