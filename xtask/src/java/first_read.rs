//! A Maven project outside the tree, with one dependency: it is compiled and run as on a machine that has a JDK and Maven, and neither Rust nor
//! an engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{GROUP, JDK_MIN, is_unreachable, stage_program, tools};
use crate::debug;
use crate::shell::{Line, Log, root, target_dir};
use crate::test::Tally;

/// Where a system's own programs are, and cargo's are not.
const PATH: &str = "/usr/bin:/bin";
/// How long an engine that nobody uses may take to end; a guard against hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a user writes.
const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId>
  <artifactId>first-read</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>@RELEASE@</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>@GROUP@</groupId>
      <artifactId>highwire-verbs</artifactId>
      <version>@VERSION@</version>
    </dependency>
  </dependencies>
  <build>
    <pluginManagement>
      <plugins>
        <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin>
        <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.1</version></plugin>
        <plugin><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version></plugin>
      </plugins>
    </pluginManagement>
  </build>
</project>
"#;
/// Where Maven finds what was just made, and, before it asks the network, what this machine has of others.
const SETTINGS: &str = r#"<settings>
  <localRepository>@WORK@/m2</localRepository>
  <profiles><profile><id>made</id>
    <repositories>
      <repository><id>made</id><url>file://@WORK@/repository</url></repository>
      <repository><id>kept</id><url>file://@KEPT@</url></repository>
    </repositories>
    <pluginRepositories>
      <pluginRepository><id>kept</id><url>file://@KEPT@</url></pluginRepository>
    </pluginRepositories>
  </profile></profiles>
  <activeProfiles><activeProfile>made</activeProfile></activeProfiles>
</settings>
"#;

/// Runs it by itself.
pub(super) fn run(log: &Log) -> Result<ExitCode> {
    let tally = trial(log)?;
    for skip in tally.skips() {
        println!("skipped: {}", skip.reason);
    }
    println!("{} checks passed, {} failed: {}", tally.passed(), tally.failed(), log.path().display());
    Ok(if tally.failed() == 0 && tally.passed() > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes the artifacts and the project, and runs it.
pub(super) fn trial(log: &Log) -> Result<Tally> {
    let home = match tools(log)? {
        Ok(home) => home,
        Err(missing) => return Ok(Tally::skipped("first-read", &missing.0)),
    };
    if !debug::program().run_logged(log)? {
        bail!("the program does not build: {}", log.path().display());
    }
    stage_program(&target_dir().join("debug/highwire"), log)?;
    let work = target_dir().join("first-read");
    // What Maven has fetched for an earlier run stays; what is tried is new each time.
    for folder in ["repository", "project", "cache"].map(|name| work.join(name)) {
        let _ = fs::remove_dir_all(folder);
    }
    let _ = fs::remove_dir_all(work.join("m2").join(GROUP.replace('.', "/")));
    let project = work.join("project");
    let version = write(&work, &project)?;
    let deploy = Line::new("mvn")
        .words("-q -B -DskipTests -Prelease -pl engine,verbs,bom -am deploy")
        .arg(format!("-DaltDeploymentRepository=made::file://{}", work.join("repository").display()))
        .env("JAVA_HOME", &home)
        .dir(root().join("java"));
    let compile = Line::new("mvn")
        .words("-q -B -s ../settings.xml compile dependency:copy-dependencies")
        .env("JAVA_HOME", &home)
        .env("PATH", PATH)
        .dir(&project);
    for line in [deploy, compile] {
        if !line.run_logged(log)? {
            if is_unreachable(&log.text()?) {
                return Ok(Tally::skipped("first-read", "Maven cannot reach its repository"));
            }
            return Ok(Tally::failure());
        }
    }
    let mut tally = Tally::default();
    let mut check = |what: &str, is_so: bool| -> Result<()> {
        log.note(&format!("{}: {what}", if is_so { "ok" } else { "not ok" }))?;
        tally.add(Tally::counts(usize::from(is_so), usize::from(!is_so)));
        Ok(())
    };
    for kind in ["", "-sources", "-javadoc"] {
        for module in ["highwire-engine", "highwire-verbs"] {
            let folder = work.join("repository").join(GROUP.replace('.', "/")).join(module).join(&version);
            let jar = folder.join(format!("{module}-{version}{kind}.jar"));
            check(&format!("there is {}", jar.display()), jar.is_file())?;
        }
    }
    let registry = Registry::new();
    let output = Line::new(&home.join("bin/java").display().to_string())
        .words("-XX:-UsePerfData -Dhighwire.engine.idle=1 -cp target/classes:target/dependency/* highwire.samples.FirstRead")
        .env("PATH", PATH)
        .env("XDG_CACHE_HOME", work.join("cache"))
        .env("HIGHWIRE_SHM_DIR", &registry.0)
        .env("HIGHWIRE_DOOR", "")
        .dir(&project)
        .capture()?;
    log.note(&format!("{}\n{}", output.stdout, output.stderr))?;
    check("it has read", output.stdout.starts_with("SUCCESS: hello from memory"))?;
    check("it has no more to say", output.success && output.stderr.is_empty())?;
    let begun = Instant::now();
    while !registry.is_deserted() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    check("its engine ends, and leaves nothing", registry.is_deserted())?;
    Ok(tally)
}

/// Writes what a user would, and returns the version that it names.
fn write(work: &Path, project: &Path) -> Result<String> {
    let pom = fs::read_to_string(root().join("java/pom.xml")).context("java/pom.xml")?;
    let version = pom.split("<version>").nth(1).and_then(|rest| rest.split("</version>").next());
    let version = version.context("java/pom.xml names no version")?.to_owned();
    let source = project.join("src/main/java/highwire/samples");
    fs::create_dir_all(&source).with_context(|| source.display().to_string())?;
    let sample = root().join("java/samples/src/main/java/highwire/samples/FirstRead.java");
    fs::copy(&sample, source.join("FirstRead.java")).with_context(|| sample.display().to_string())?;
    let written = POM.replace("@GROUP@", GROUP).replace("@VERSION@", &version);
    fs::write(project.join("pom.xml"), written.replace("@RELEASE@", &JDK_MIN.to_string()))?;
    let kept = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".m2/repository");
    let settings = SETTINGS.replace("@WORK@", &work.display().to_string());
    fs::write(work.join("settings.xml"), settings.replace("@KEPT@", &kept.display().to_string()))?;
    Ok(version)
}

/// Where engines of the trial find each other.
struct Registry(PathBuf);

impl Registry {
    fn new() -> Registry {
        Registry(Path::new("/dev/shm").join(format!("highwire-first-read-{}", std::process::id())))
    }

    /// Whether there is no device: what the registry keeps is its lock, its namespace and its roster.
    fn is_deserted(&self) -> bool {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.into_iter().all(|name| name == "lock" || name == "net" || name.starts_with("roster-"))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
