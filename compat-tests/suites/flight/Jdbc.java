import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

/** Jdbc.java FLIGHT : Arrow's Flight SQL JDBC driver connects, browses, writes and reads. */
public class Jdbc {
    interface Case { void run(Connection c) throws Exception; }

    static final String TABLE = "jdbc_" + Long.toHexString(System.nanoTime());
    static int bad = 0;

    static void equal(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) throw new AssertionError("got " + got + ", not " + wanted);
    }

    static List<List<Object>> rows(ResultSet r) throws SQLException {
        List<List<Object>> rows = new ArrayList<>();
        int n = r.getMetaData().getColumnCount();
        while (r.next()) {
            List<Object> row = new ArrayList<>();
            for (int i = 1; i <= n; i++) row.add(r.getObject(i));
            rows.add(row);
        }
        r.close();
        return rows;
    }

    static void run(String url, String name, Case body) {
        try (Connection c = DriverManager.getConnection(url)) {
            body.run(c);
            System.out.println("ok jdbc-" + name);
        } catch (Throwable e) {
            bad++;
            System.out.println("not ok jdbc-" + name + " " + String.valueOf(e).replace('\n', ' '));
            e.printStackTrace();
        }
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:arrow-flight-sql://" + args[0] + "/?useEncryption=false";
        System.out.println("# " + DriverManager.getDriver(url).getClass().getPackage().getImplementationVersion());
        run(url, "connect", c -> {
            equal("Sluice", c.getMetaData().getDatabaseProductName());
            equal(false, c.getMetaData().isReadOnly());
        });
        run(url, "write-and-read", c -> {
            try (Statement s = c.createStatement()) {
                s.executeUpdate("CREATE TABLE " + TABLE + " (k INT, name STRING, price DECIMAL(10, 2), PRIMARY KEY (k) NOT ENFORCED)");
                equal(2, s.executeUpdate("INSERT INTO " + TABLE + " VALUES (1, 'a', 1.50), (2, 'b', NULL)"));
                equal(1, s.executeUpdate("UPDATE " + TABLE + " SET name = 'c' WHERE k = 2"));
                equal(List.of(List.of(1, "a", new BigDecimal("1.50")), Arrays.asList(2, "c", null)),
                    rows(s.executeQuery("SELECT * FROM " + TABLE + " ORDER BY k")));
            }
        });
        run(url, "parameters", c -> {
            try (PreparedStatement s = c.prepareStatement("INSERT INTO " + TABLE + " (k, name) VALUES (?, ?)")) {
                s.setInt(1, 7);
                s.setString(2, "it's");
                equal(1, s.executeUpdate());
            }
            try (PreparedStatement s = c.prepareStatement("SELECT name FROM " + TABLE + " WHERE k = ?")) {
                s.setInt(1, 7);
                equal(List.of(List.of("it's")), rows(s.executeQuery()));
                s.setInt(1, 99);
                equal(List.of(), rows(s.executeQuery()));
            }
        });
        run(url, "browse", c -> {
            DatabaseMetaData m = c.getMetaData();
            try (ResultSet tables = m.getTables(null, "default", TABLE, null)) {
                equal(true, tables.next());
                equal(TABLE, tables.getString("TABLE_NAME"));
                equal("TABLE", tables.getString("TABLE_TYPE"));
                equal(false, tables.next());
            }
            try (ResultSet columns = m.getColumns(null, "default", TABLE, null)) {
                List<String> names = new ArrayList<>();
                while (columns.next()) names.add(columns.getString("COLUMN_NAME"));
                equal(List.of("k", "name", "price"), names);
            }
            try (ResultSet keys = m.getPrimaryKeys(null, "default", TABLE)) {
                equal(true, keys.next());
                equal("k", keys.getString("COLUMN_NAME"));
                equal(false, keys.next());
            }
            try (ResultSet schemas = m.getSchemas()) {
                boolean found = false;
                while (schemas.next()) found |= "default".equals(schemas.getString("TABLE_SCHEM"));
                equal(true, found);
            }
        });
        run(url, "refusals", c -> {
            try (Statement s = c.createStatement()) {
                for (String text : List.of("SELECT * FROM nowhere", "SELEC", "INSERT INTO " + TABLE + " VALUES (NULL, 'x', 1)")) {
                    try {
                        s.execute(text);
                        throw new AssertionError("not refused: " + text);
                    } catch (SQLException e) {
                        equal(true, e.getMessage() != null && !e.getMessage().isEmpty());
                    }
                }
                equal(List.of(List.of(3L)), rows(s.executeQuery("SELECT COUNT(*) FROM " + TABLE)));
            }
        });
        System.exit(bad == 0 ? 0 : 1);
    }
}
