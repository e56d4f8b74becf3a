//! `latchwork completions` and `latchwork man`: what an installation has beside the command, made from its options.

use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use latchwork::registry::Kind;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names::{self, GLIBC};
use latchwork_console::output;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// After the options in `latchwork completions --help`.
pub const COMPLETIONS_HELP: &str = "\
Examples:
  latchwork completions bash > ~/.local/share/bash-completion/completions/latchwork
  latchwork completions zsh > ~/.zfunc/_latchwork        if ~/.zfunc is in $fpath
  latchwork completions fish > ~/.config/fish/completions/latchwork.fish
  latchwork completions elvish > ~/.config/elvish/lib/latchwork.elv    and `use latchwork` in rc.elv
  latchwork completions powershell >> $PROFILE           in PowerShell";

/// After the options in `latchwork man --help`.
pub const MAN_HELP: &str = "\
Examples:
  latchwork man ~/.local/share/man/man1
  man latchwork-compare";

/// Options of `latchwork completions`.
#[derive(Args)]
pub struct CompletionsOptions {
    /// The shell
    shell: Shell,
}

/// Options of `latchwork man`.
#[derive(Args)]
pub struct ManOptions {
    /// The directory, which is made if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Arguments that are no options: `clap_complete` leaves them out for fish, which then offers files.
const FISH_ARGUMENTS: &str = r#"
complete -c latchwork -n "__fish_latchwork_using_subcommand completions" -f -a "bash elvish fish powershell zsh"
complete -c latchwork -n "__fish_latchwork_using_subcommand run check compare profile record tune" -a "(__fish_complete_command)"
"#;

/// Prints the script.
pub fn completions(mut command: Command, options: &CompletionsOptions) -> Result<()> {
    // The shell offers the names of the locks. The command itself checks them with better messages than clap's.
    let named = |kind| PossibleValuesParser::new(names::of_kind(kind).into_iter().chain([GLIBC]));
    for subcommand in ["run", "check", "compare", "profile", "record"] {
        command = command.mut_subcommand(subcommand, |subcommand| {
            subcommand
                .mut_arg("mutex", |arg| arg.value_parser(named(Kind::Mutex)))
                .mut_arg("rwlock", |arg| arg.value_parser(named(Kind::RwLock)))
        });
    }
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "latchwork", &mut script);
    if options.shell == Shell::Fish {
        script.extend(FISH_ARGUMENTS.as_bytes());
    }
    output::print_bytes(&script)
}

/// Writes `latchwork.1`, and a page for each subcommand.
pub fn man(mut command: Command, options: &ManOptions) -> Result<()> {
    let fail = |error: io::Error| Failure::new(format!("{}: {error}", options.directory.display()));
    fs::create_dir_all(&options.directory).map_err(fail)?;
    // Fills in the options that all commands have.
    command.build();
    let name = command.get_name().to_owned();
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    for page in std::iter::once(&command).chain(subcommands) {
        let full = if page.get_name() == name { name.clone() } else { format!("{name}-{}", page.get_name()) };
        if page.get_name() == "help" {
            continue;
        }
        let mut text = Vec::new();
        render(page.clone(), &full, &mut text).expect("a Vec takes all");
        fs::write(options.directory.join(format!("{full}.1")), text).map_err(fail)?;
    }
    Ok(())
}

fn render(page: Command, full: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let after = page.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = page.has_subcommands();
    let man = Man::new(page.version(env!("CARGO_PKG_VERSION")).display_name(full.to_owned()))
        .title(full)
        .source(concat!("latchwork ", env!("CARGO_PKG_VERSION")))
        .manual("latchwork")
        .section("1");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if has_subcommands {
        man.render_subcommands_section(out)?;
    }
    out.write_all(roff(&after).as_bytes())
}

/// The text after the options: its paragraphs, and its examples as they stand.
fn roff(text: &str) -> String {
    let mut page = String::from(if text.starts_with("Examples:") { "" } else { ".SH NOTES\n" });
    let mut literal = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        if indented != literal {
            page += if indented { ".nf\n" } else { ".fi\n" };
            literal = indented;
        }
        match line {
            "" => page += ".PP\n",
            "Examples:" => page += ".SH EXAMPLES\n",
            // A line that begins with a dot or a quote would be a request; \& is nothing.
            line => page += &format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-")),
        }
    }
    if literal {
        page += ".fi\n";
    }
    page
}
